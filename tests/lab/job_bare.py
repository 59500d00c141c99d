"""Job `bare`: the driver on a bare machine (linker/), on the served function: round trips, and faults by exit code."""

import re
from dataclasses import dataclass
from pathlib import Path

import cargo
import guest
import judge
from lab import PROJECT, Lab, Row

MEMORY_LINE = "still taken: 0 pages for the device, 0 bytes of the heap"
# QEMU's exit code is twice what the image writes to isa-debug-exit, and one: see `Verdict` in linker/src/io.rs.
EXIT_DEVICE = ["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
PASS, NO_FUNCTION, DRIVER_ERROR = 33, 35, 39


@dataclass(frozen=True)
class Boot:
    """A boot: the function's arguments (None: there is no function), and what the image must do and say."""

    served: list[str] | None
    exit_code: int
    lines: list[str]
    """Regular expressions for the whole lines on the serial line, after the first."""
    failed: list[str]
    """Commands that must have failed, in order, each with its status; `?` for no answer."""


def passing(*served: str, device: str = "1018", bar: str = "0x[0-9a-f]{8}, 0x100000") -> Boot:
    """A boot that must pass. `bar`: what the image says on BAR 0, address and size."""
    lines = [
        rf"function 01:00\.0, device {device}, BAR 0 at {bar} bytes",
        r"up: firmware [0-9.]+, 80 pages given",
        "16 round trips, 65552 bytes compared",
        MEMORY_LINE,
        "PASS",
    ]
    return Boot(list(served), PASS, lines, [])


def failing(fault: str, failed: str, reason: str, *before: str, memory: str = MEMORY_LINE) -> Boot:
    """A boot with a fault: command `failed` fails, `reason` is said at the end, the lines `before` all the same."""
    lines = [r"function 01:00\.0, .*", *before, memory, f"FAIL {failed.split()[0]}{reason}"]
    return Boot(["--fault", fault], DRIVER_ERROR, lines, [failed])


def refusing(command: str, *before: str) -> Boot:
    """A boot in which `command` is refused."""
    return failing(f"status:{command}=3", f"{command} 3", " failed: .*", *before)


BOOTS = {
    "virtual function": passing(),
    "physical function": passing("--pf", device="1017"),
    "BAR 0 beyond 4 GiB": passing("--bar-size", "8G", bar="0x[0-9a-f]{9,}, 0x200000000"),
    "firmware that boots slowly": passing("--boot-ms", "300"),
    "INIT_HCA refused": refusing("INIT_HCA"),
    "CREATE_QP refused": refusing("CREATE_QP", "up: .*"),
    "DESTROY_CQ refused": refusing("DESTROY_CQ", "up: .*", "16 round trips, .*"),
    # What the command may still write to is only given back once the function was reset.
    "INIT_HCA without an answer": failing("never:INIT_HCA", "INIT_HCA ?", ": no answer in time; .*"),
    "a fatal health syndrome": failing(
        "health:INIT_HCA=1/0/reset", "INIT_HCA ?", " has no answer: .*, health syndrome FW_INTERNAL_ERR; .*"
    ),
    # A function that does not come back from its reset may still write: its memory is kept.
    "a function that is gone": failing(
        "removed:INIT_HCA", "INIT_HCA ?", " has no answer: .* all ones; .*", memory="still taken: [1-9][0-9]* pages .*"
    ),
    "no function": Boot(None, NO_FUNCTION, [MEMORY_LINE, "FAIL no function of vendor 15b3 on any bus"], []),
}


def run(lab: Lab) -> list[Row]:
    """One row a boot."""
    image = build()
    return lab.rows("bare", {name: lambda n=name, b=b: boot(lab, image, n, b) for name, b in BOOTS.items()})


def build() -> Path:
    """The image, built from the project."""
    where = ["--manifest-path", "linker/Cargo.toml", "--target-dir", "linker/target"]
    return cargo.build(PROJECT, where, "")[0]


def boot(lab: Lab, image: Path, name: str, wanted: Boot) -> list[str]:
    """Boots the image once; returns what is wrong with that."""
    log = "bare-" + re.sub(r"\W+", "-", name)
    args = ["-kernel", str(image), *EXIT_DEVICE]
    if wanted.served is None:
        return guest_faults(lab.guest(log, args, seconds=60), wanted)
    with lab.serve(log, *wanted.served) as function:
        result = lab.guest(log, [*args, *guest.function_devices(function.socket)], seconds=60)
        served = function.finish()
    return guest_faults(result, wanted) + judge.report_faults(served) + trace_faults(served.trace, wanted.failed)


def guest_faults(result: guest.GuestRun, wanted: Boot) -> list[str]:
    """The serial line and the exit code against what they must be."""
    faults = []
    if result.exit_code != wanted.exit_code:
        faults.append(f"exit code {result.exit_code}, not {wanted.exit_code}; see {result.log}")
    # QEMU's own messages about its devices come before the image's first line.
    _, found, said = result.serial.partition(" on a bare machine")
    lines = said.strip().splitlines()
    same = len(lines) == len(wanted.lines) and all(map(re.fullmatch, wanted.lines, lines))
    if not found or not same:
        faults.append(f"the image said {lines}, not {wanted.lines}; see {result.log}")
    return faults


def trace_faults(trace: str, failed: list[str]) -> list[str]:
    """The function's view: commands came, and those that failed are the ones that should."""
    lines = [line for line in trace.splitlines() if "CMD" in line]
    if not lines:
        return ["no command reached the function"]
    ends = [re.search(r"CMD slot=\d+ (\w+)\(.*? st=(\S+)", line) for line in lines]
    found = [f"{end[1]} {end[2]}" if end else "a line that cannot be read" for end in ends if not end or end[2] != "0"]
    return [] if found == failed else [f"of the commands failed {found}, not {failed}"]
