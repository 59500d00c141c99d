"""Judges what a guest's kernel logged, what the function was asked for, and how it ended."""

import difflib
import re
from dataclasses import dataclass

from model import ModelRun

# Levels up to this one are warnings and worse (the kernel's KERN_WARNING).
WARNING = 4
BAD_WORDS = re.compile(r"WARNING:|BUG:|Oops|Call Trace|refcount|leak|fail|error|time[d ]*out|unable|\bnot return", re.I)
# What the model's report must say of a driver that went in order.
CLEAN_REPORT = {"violations": "0", "objects": "none", "pages": "0"}
# And what of a driver that has given the function back while its machine still runs.
HELD_REPORT = {**CLEAN_REPORT, "maps": "0", "vectors": "0"}


@dataclass(frozen=True)
class Allowed:
    """A line that a sound run may log, and why."""

    pattern: str
    reason: str


@dataclass(frozen=True)
class Command:
    """A command as the function got it. Lengths are in bytes."""

    slot: int
    name: str
    opcode: int
    op_mod: int
    input_length: int
    output_length: int

    def __str__(self) -> str:
        return f"{self.slot} {self.name} {self.opcode:#x} {self.op_mod} {self.input_length} {self.output_length}"


@dataclass(frozen=True)
class Extra:
    """A command that a driver sends beyond the list, and why."""

    before: str
    """The name of the command that it comes directly before, the first time."""
    command: Command
    detail: str
    """What the trace says of it beyond the lengths."""
    reason: str


@dataclass(frozen=True)
class Completions:
    """Completions that a function wrote."""

    written: int
    compressed: int
    inlined: int
    """Those with the message's data in them."""


def dmesg(serial: str) -> list[str] | None:
    """The kernel's log between the marks, a line each as `<level>[time] text`; None when there is none."""
    found = re.search(r"^@@dmesg-begin\r?\n(.*?)^@@dmesg-end", serial, re.S | re.M)
    return found[1].replace("\r", "").splitlines() if found else None


def dmesg_faults(lines: list[str] | None, allowed: list[Allowed]) -> list[str]:
    """Warnings, errors and alarming words, unless allowed. A log without a word of mlx5_core is a fault too."""
    if lines is None:
        return ["the guest printed no kernel log"]
    faults = []
    for line in lines:
        level = re.match(r"<(\d+)>", line)
        bad = not level or int(level[1]) & 7 <= WARNING or BAD_WORDS.search(line)
        if bad and not any(re.search(a.pattern, line) for a in allowed):
            faults.append(f"the kernel logged: {line}")
    if not any("mlx5_core" in line for line in lines):
        faults.append("the kernel logged nothing of mlx5_core")
    return faults


def mark_faults(marks: list[str], wanted: list[str]) -> list[str]:
    """What the guest's script said, against what it must say."""
    return [f"the guest: {line}" for line in difference(wanted, marks)]


def recorded_commands(text: str) -> list[Command]:
    """The commands of a recorded trace: tests/data/linux-core-only.log."""
    return traced_commands(text)[0]


def traced_commands(trace: str) -> tuple[list[Command], list[str]]:
    """The commands of a trace of mlx5-model, and faults: commands that did not succeed, lines that cannot be read."""
    commands, faults = [], []
    form = re.compile(
        r"\bCMD slot=(\d+) (\w+)\((0x[0-9a-f]+)\) opmod=(\d+)(?: uid=\d+)? inlen=(\d+) outlen=(\d+) st=(\w+)"
    )
    for line in trace.splitlines():
        found = form.search(line)
        if found:
            numbers = int(found[3], 16), int(found[4]), int(found[5]), int(found[6])
            commands.append(Command(int(found[1]), found[2], *numbers))
            if int(found[7], 0) != 0:
                faults.append(f"a command failed: {line}")
        elif "CMD" in line:
            faults.append(f"no line of a trace: {line}")
    return commands, faults


def detail_faults(trace: str, extras: list[Extra]) -> list[str]:
    """Extra commands that did not do what they are expected for."""
    lines = trace.splitlines()
    found = {e: any(e.command.name in line and f" {e.detail}" in line for line in lines) for e in extras}
    return [
        f"no {extra.command.name} had {extra.detail}: {extra.reason}"
        for extra, is_there in found.items()
        if not is_there
    ]


def expected_commands(recorded: list[Command], extras: list[Extra]) -> list[Command]:
    """The recorded list with the extra commands in their places."""
    commands = list(recorded)
    for extra in extras:
        place = next(i for i, command in enumerate(commands) if command.name == extra.before)
        commands.insert(place, extra.command)
    return commands


def trace_faults(trace: str, expected: list[Command]) -> list[str]:
    """Commands that failed, are missing, are too many or out of order."""
    commands, faults = traced_commands(trace)
    lines = difference([str(c) for c in expected], [str(c) for c in commands])
    return faults + [f"the commands: {line}" for line in lines]


def report_faults(served: ModelRun) -> list[str]:
    """The function's own account: no violation, and nothing of the driver's left on it."""
    faults = []
    if served.exit_code is None:
        faults.append("mlx5-model was still serving after its client had gone")
    elif served.exit_code != 0:
        faults.append(f"mlx5-model ended with {served.exit_code}")
    for what, clean in CLEAN_REPORT.items():
        if not re.search(rf"^{what} +{clean}$", served.report, re.M):
            faults.append(f"the report does not say '{what} {clean}': {' | '.join(served.report.splitlines())}")
    return faults


def completions(report: str) -> Completions:
    """How many completions the function has written so far; none when the report does not tell."""
    found = re.search(r"^completions (\d+) \((\d+) compressed, (\d+) with data in them\)$", report, re.M)
    return Completions(*map(int, found.groups())) if found else Completions(0, 0, 0)


def held_faults(report: str) -> list[str]:
    """What a report that was asked for while the guest still ran says is left there."""
    lines = {what: re.search(rf"^{what} +(.*)$", report, re.M) for what in HELD_REPORT}
    said = {what: found[1] if found else "nothing" for what, found in lines.items()}
    return [
        f"the report says '{what} {said[what]}', not '{what} {clean}'"
        for what, clean in HELD_REPORT.items()
        if said[what] != clean
    ]


def difference(wanted: list[str], got: list[str]) -> list[str]:
    """What is missing from `got` (`-`), and what is in it too much (`+`), in order."""
    lines = list(difflib.unified_diff(wanted, got, "wanted", "got", lineterm="", n=0))[2:]
    return [line for line in lines if not line.startswith("@@")]
