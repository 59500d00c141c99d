"""Scenes of job `vfio` that mlx5-lab-probe measures: interrupts, killed drivers, killed models, resets, bad memory."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import guest
import judge
import vfio_guest
from kernels import Kernel
from lab import Lab, Row
from model import ModelRun
from vfio_guest import INTEL, KERNEL_LOG, PATIENCE, Expect

PROBE = "mlx5-lab-probe"

# A call that ends within ten seconds; a command would wait for a minute, others for ever.
SOON = r"us=\d{1,7} "
GONE = "error=Gone errno=19 text="
FAILED = "^@@probe failed"
# The command that has no answer while a call blocks.
STALLED = {
    "open": "INIT_HCA",
    "command": "QUERY_QP",
    "destroy": "DESTROY_QP",
    "drop-object": "DESTROY_QP",
    "dereg": "DESTROY_MKEY",
    "resize": "MODIFY_CQ",
    "close": "TEARDOWN_HCA",
    "drop-device": "TEARDOWN_HCA",
    "all": "QUERY_QP",
    "cq-wait": None,
    "get-event": None,
    "async-event": None,
    "traffic": None,
}
# What `all` waits for, at once.
ALL = ["cq-wait", "get-event", "get-event-too", "async-event", "command"]
# Calls that share a function: a command that is left out once must be one that only this call sends.
RESETS = [
    ["cq-wait", "get-event", "async-event", "traffic", "command", "resize", "all"],
    ["open"],
    ["destroy"],
    ["dereg"],
    ["close"],
    ["drop-object"],
    ["drop-device"],
]

# The tool's words and its exit code.
TOOL_GONE = Expect(says=["^error: .*the device does not answer, its registers read as all ones", "^code 1$"])

MEASURED = {
    "binding": Expect(),
    "traces before": Expect(says=["^interrupts 0$", "^open 0$", "HugePages_Free: +32$"]),
    "events on every vector": Expect(
        # Four completion vectors, in pairs: each end of a pair had 20 events, one at a time. Who takes one of a pair's
        # may find the other's before its interrupt, so there are fewer of these.
        says=[rf"vector={n} events=20 interrupts=([5-9]|\d\d)$" for n in range(4)]
    ),
    # It lasts 3 seconds, 300 ticks, all of which a thread that spins takes; 11 to 43 were measured, the most on a machine
    # with seven times the work that it can do. Each of the three threads looks ten times a second: 97 to 121 switches.
    "an idle wait": Expect(
        says=[
            r"^@@probe idle device=\S+ ms=([3-9]|\d\d)\d{3} ticks=[1-5]?\d switches=([1-9]?\d|[12]\d\d) "
            r"completion=[1-9]\d* event=[1-9]\d* asynchronous=[1-9]\d*$"
        ]
    ),
    "two functions, one program": Expect(
        says=["device=0000:01:00.0 messages=150", "device=0000:02:00.0 messages=150"]
    ),
    "two functions, one program, by events": Expect(
        says=["device=0000:01:00.0 messages=60", "device=0000:02:00.0 messages=60"]
    ),
    "two functions, two programs": Expect(says=["^both ran$", "device=0000:02:00.0 messages=100"]),
    # Locked is what was registered, in whole pages, and afterwards as much as before.
    "memory of the program": Expect(says=[r"bytes=100001 locked_before=(\d+) locked=(?!\1 )\d+ locked_after=\1$"]),
    "killed in mid-traffic": Expect(says=["interrupts [1-9]", "messages=100", "ended with 137"]),
    "killed asleep, 4 KiB pages": Expect(says=["interrupts [1-9]", "messages=100", "ended with 137"]),
    "traffic beside a forked child": Expect(says=[r"^@@probe fork device=\S+ messages=([2-9]|\d\d+) child=0$"]),
    "killed beside a forked child": Expect(
        says=["^@@probe failed .*in use", "while the child lives: 1", "messages=10 "]
    ),
    "nothing mapped": Expect(
        says=[
            "unmapped gather side=sender status=LOC_PROT_ERR",
            "unmapped scatter side=receiver status=LOC_PROT_ERR",
            "unmapped scatter side=sender status=REM_OP_ERR",
            "unmapped messages=20 failure=None",
        ]
    ),
    "traces after": Expect(says=["^interrupts 0$", "^open 0$", "HugePages_Free: +32$"], not_says=["bus master .*: 1"]),
    "kernel log": KERNEL_LOG,
}


def scenes(lab: Lab, programs: dict[str, Path]) -> dict[str, Callable[[], list[Row]]]:
    """Each scene by its name: one with the oldest kernel, one with the newest."""
    first, last = lab.kernels[0], lab.kernels[-1]
    return {
        f"{first.name} {INTEL.name} measured": partial(measured, lab, first, programs),
        f"{last.name} {INTEL.name} gone": partial(gone, lab, last, programs),
    }


def never(call: str) -> list[str]:
    """The model's arguments for a function on which `call` blocks."""
    command = STALLED[call]
    return ["--fault", f"never:{command}"] if command else []


def measured(lab: Lab, kernel: Kernel, programs: dict[str, Path]) -> list[Row]:
    """One boot for all that leaves the model alive."""
    scene, log = f"{kernel.name} {INTEL.name} measured", f"vfio-measured-{kernel.name}"
    functions = [[], [], [], *([word for call in calls for word in never(call)] for calls in RESETS)]
    with ExitStack() as stack:
        models = [stack.enter_context(lab.serve(f"{log}-{n}", *args)) for n, args in enumerate(functions)]
        devices = guest.function_devices(*(model.socket for model in models))
        settings = {"RESETS": " ".join(",".join(calls) for calls in RESETS)}
        running = stack.enter_context(
            vfio_guest.boot(lab, log, kernel, "vfio_faults.sh", devices, programs, settings=settings)
        )
        running.wait_mark("look at the models", PATIENCE)
        held = [model.report() for model in models]
        running.say("done")
        result = running.finish()
        served = [model.finish() for model in models]
    resets = {f"reset: {call}": reset_expected(call) for calls in RESETS for call in calls}
    rows = vfio_guest.step_rows("vfio", scene, result, MEASURED | resets)
    faults = [
        f"function {n}: {fault}"
        for n, (report, run) in enumerate(zip(held, served))
        for fault in model_faults(report, run, unmapped=n == 2)
    ]
    return [*rows, Row("vfio", f"{scene}: the functions' reports", faults, 0)]


def model_faults(held: str, run: ModelRun, unmapped: bool) -> list[str]:
    """The function's account before the guest's end and after it: nothing left.

    Where the driver was led to memory that is not mapped: both accesses, and no other violation.
    """
    if not unmapped:
        return judge.held_faults(held) + judge.report_faults(run)
    violations = re.findall(r"^violation: (\w+)", run.report, re.M)
    faults = [] if violations == ["DmaUnmapped"] * 2 else [f"it reports {violations}, not two accesses to nothing"]
    held, ended = (re.sub("^violations  2$", "violations  0", text, flags=re.M) for text in (held, run.report))
    return faults + judge.held_faults(held) + judge.report_faults(ModelRun(0, ended, ""))


def reset_expected(call: str) -> Expect:
    """What a call says whose function somebody else resets: its registers may read as ones meanwhile.

    Then it works, and completions come by interrupts, which the kernel has put back (C-103).
    """
    ended = ends("reset", call, "error=(Reset|Gone) errno=19 text=")
    return Expect(says=[*ended, f"^@@probe reset call={call} messages=20 interrupts=[1-9]"], not_says=[FAILED])


def ends(what: str, call: str, error: str) -> list[str]:
    """How a call ended, soon and by type, or without an error where there is nobody to tell."""
    if call == "all":
        return [rf"^@@probe {what} call=all:{part} {SOON}{error}" for part in ALL]
    how = "error=none" if call.startswith("drop") else error
    return [rf"^@@probe {what} call={call} {SOON}{how}"]


def gone(lab: Lab, kernel: Kernel, programs: dict[str, Path]) -> list[Row]:
    """One boot, a function for each call, and each function's model killed while the call blocks."""
    scene, log = f"{kernel.name} {INTEL.name} gone", f"vfio-gone-{kernel.name}"
    with ExitStack() as stack:
        models = {call: stack.enter_context(lab.serve(f"{log}-{call}", *never(call))) for call in STALLED}
        of_tool = stack.enter_context(lab.serve(f"{log}-tool"))
        devices = guest.function_devices(*(model.socket for model in [*models.values(), of_tool]))
        settings = {"CALLS": " ".join(STALLED)}
        running = stack.enter_context(
            vfio_guest.boot(lab, log, kernel, "vfio_gone.sh", devices, programs, settings=settings)
        )
        running.wait_mark("kill the tool's", PATIENCE)
        running.lose(of_tool)
        running.say("done")
        for call, model in models.items():
            running.wait_mark(f"probe gone struck call={call}", 120)
            running.lose(model)
        result = running.abandon()
    expected = {f"gone: {call}": gone_expected(call) for call in STALLED}
    expected |= {"binding": Expect(), "gone: mlx5 pingpong": TOOL_GONE, "kernel log": KERNEL_LOG}
    return vfio_guest.step_rows("vfio", scene, result, expected)


def gone_expected(call: str) -> Expect:
    """What is said of a call whose function leaves. The program's exit code is not seen, so it says that it is done."""
    return Expect(says=[*ends("gone", call, GONE), *later(call), f"^@@probe gone done call={call}$"], not_says=[FAILED])


def later(call: str) -> list[str]:
    """What the next call says, where a device is left to ask, and that everything is ended soon."""
    if call in ("open", "close", "drop-device"):
        return []
    soon = r"next_us=\d{1,7} close_us=\d{1,7} "
    return [rf"^@@probe gone after={call} {soon}failure=\S+ {GONE}ALLOC_PD was not sent"]
