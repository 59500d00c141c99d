"""Boots guests in QEMU and collects what they say on the serial line."""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import processes

APPEND = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr"
MEMORY = "1G"


@dataclass(frozen=True)
class GuestRun:
    """How a guest's run ended."""

    serial: str
    """What the guest wrote to its serial line, and QEMU's own messages."""
    exit_code: int | None
    """QEMU's exit code; None when the guest was still running at the end of its time."""
    seconds: float
    log: Path
    """The file that holds `serial`."""

    def marks(self) -> list[str]:
        """The lines that the guest's script wrote for the lab, without their @@."""
        return re.findall(r"^@@(.*?)\r?$", self.serial, re.M)


def function_device(socket: Path) -> list[str]:
    """QEMU's arguments for the function that is served on `socket`, behind a root port."""
    # A loaded machine may keep the model from answering for a while, and QEMU gives up for good.
    patience = {"x-msg-timeout": 60_000}
    address = {"type": "unix", "path": str(socket)}
    device = json.dumps({"driver": "vfio-user-pci", "bus": "rp0", "socket": address, **patience})
    return ["-device", "pcie-root-port,id=rp0", "-device", device]


def linux(image: Path, initrd: Path, append: str = "") -> list[str]:
    """QEMU's arguments that boot a Linux kernel."""
    return ["-kernel", str(image), "-initrd", str(initrd), "-append", f"{APPEND} {append}".strip()]


def run(qemu: list[str], args: list[str], log: Path, seconds: float) -> GuestRun:
    """Runs a guest until it powers off or exits. Its memory is shared, so that a served function can reach it."""
    machine = [
        "-machine", "q35,memory-backend=ram0",
        "-m", MEMORY,
        "-object", f"memory-backend-memfd,id=ram0,size={MEMORY},share=on",
        "-accel", "tcg", "-cpu", "max",
        "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
    ]  # fmt: skip
    start = time.monotonic()
    with open(log, "wb") as sink:
        process = processes.start([*qemu, *machine, *args], sink)
    ended = processes.wait(process, seconds)
    processes.end(process)
    serial = log.read_text(encoding="utf-8", errors="replace")
    return GuestRun(serial, process.returncode if ended else None, time.monotonic() - start, log)
