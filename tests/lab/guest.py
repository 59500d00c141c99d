"""Boots guests in QEMU, talks with their scripts and collects what they say on the serial line."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import processes
from errors import LabError
from model import Model

APPEND = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr"
MEMORY = "1G"
# Seconds in which a model has read all that it was sent.
STANDS_STILL = 0.2
MARK = re.compile(r"^@@(.*?)\r?\n", re.M)


@dataclass(frozen=True)
class GuestRun:
    """How a guest's run ended."""

    serial: str
    """What the guest wrote to its serial line."""
    exit_code: int | None
    """QEMU's exit code; None when the guest was still running at the end of its time."""
    seconds: float
    log: Path
    """The file that holds `serial`; QEMU's own messages lie in a neighbour."""

    def marks(self) -> list[str]:
        """The lines that the guest's script wrote for the lab, without their @@."""
        return re.findall(r"^@@(.*?)\r?$", self.serial, re.M)


class Running:
    """A guest that runs; a context manager that ends it. A served function can reach its memory."""

    def __init__(self, qemu: list[str], args: list[str], log: Path):
        """Starts QEMU with these arguments."""
        machine = [
            "-machine", "q35,memory-backend=ram0",
            "-m", MEMORY,
            "-object", f"memory-backend-memfd,id=ram0,size={MEMORY},share=on",
            "-accel", "tcg", "-cpu", "max",
            "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        ]  # fmt: skip
        self._log = log
        self._seen = 0
        self._start = time.monotonic()
        # In the middle of a line of the guest, what QEMU says of a function that is gone would spoil it.
        with open(log, "wb") as sink, open(log.with_suffix(".qemu.log"), "wb") as errors:
            self._process = processes.start([*qemu, *machine, *args], sink, errors.fileno(), subprocess.PIPE)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)
        if self._process.stdin:
            self._process.stdin.close()

    def wait_mark(self, mark: str, seconds: float = 60) -> str:
        """The next mark that begins as this regular expression says, without @@. Others before it are passed over."""
        limit = time.monotonic() + seconds
        while True:
            ended = self._process.poll() is not None
            for found in MARK.finditer(self._serial(), self._seen):
                self._seen = found.end()
                if re.match(mark, found[1]):
                    return found[1]
            if ended or time.monotonic() > limit:
                why = "ended" if ended else f"went on for {seconds} s"
                raise LabError(f"the guest {why} without a mark '{mark}'; see {self._log}")
            time.sleep(0.02)

    def say(self, line: str) -> None:
        """Writes a line to the guest's serial line, where its script may `read` it."""
        assert self._process.stdin
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise LabError(f"the guest ended before it was told '{line}'; see {self._log}") from error

    def lose(self, served: Model) -> None:
        """Kills a model with SIGKILL: to the guest the function is gone from its bus, from one moment to the next.

        QEMU (11.1) aborts (`error_setv: Assertion`) when the model goes with a message unread, so it stands still until
        the model has read what there is.
        """
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(STANDS_STILL)
        served.kill()
        os.kill(self._process.pid, signal.SIGCONT)

    def finish(self, seconds: float = 120) -> GuestRun:
        """Waits until the guest powers off or exits, or its time is over."""
        ended = processes.wait(self._process, seconds)
        processes.end(self._process)
        seconds = time.monotonic() - self._start
        return GuestRun(self._serial(), self._process.returncode if ended else None, seconds, self._log)

    def abandon(self, seconds: float = 120) -> GuestRun:
        """Waits for the end of the guest's script and ends QEMU, which aborts at a power-off without its model."""
        self.wait_mark("done$", seconds)
        processes.end(self._process)
        return GuestRun(self._serial(), 0, time.monotonic() - self._start, self._log)

    def _serial(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


def function_devices(*sockets: Path) -> list[str]:
    """QEMU's arguments for served functions, each behind a root port of its own: each has its own IOMMU group."""
    args = []
    for number, socket in enumerate(sockets):
        port = f"rp{number}"
        args += ["-device", f"pcie-root-port,id={port},chassis={number}", *function(socket, bus=port)]
    return args


def one_group(*sockets: Path, number: int = 0) -> list[str]:
    """QEMU's arguments for served functions of one device, the machine's device `number` of this kind.

    Behind one root port and without ACS they are one IOMMU group.
    """
    name = f"shared{number}"
    port = ["-device", f"pcie-root-port,id={name},chassis={100 + number}"]
    functions = [
        function(socket, bus=name, addr=f"0x0.{place:x}", multifunction=True)
        for place, socket in enumerate(sockets)
    ]
    return port + [word for words in functions for word in words]


def function(socket: Path, **options: object) -> list[str]:
    """QEMU's arguments for the function that is served on `socket`, with more options of the device."""
    # A loaded machine may keep the model from answering for a while, and QEMU gives up for good.
    patience = {"x-msg-timeout": 60_000}
    address = {"type": "unix", "path": str(socket)}
    return ["-device", json.dumps({"driver": "vfio-user-pci", "socket": address, **options, **patience})]


def linux(image: Path, initrd: Path, append: str = "") -> list[str]:
    """QEMU's arguments that boot a Linux kernel."""
    return ["-kernel", str(image), "-initrd", str(initrd), "-append", f"{APPEND} {append}".strip()]
