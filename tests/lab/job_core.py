"""Job `core`: unmodified mlx5_core binds to the profile `core` and leaves it, as a virtual and as a physical function."""

import re
from functools import partial

import guest
import judge
from kernels import Kernel
from lab import HERE, PROJECT, Lab, Row
from model import ModelRun

DEVICES = {"VF": "1018", "PF": "1017"}
RECORDED = PROJECT / "tests" / "data" / "linux-core-only.txt"

EXTRAS: dict[tuple[str, str], list[judge.Extra]] = {
    ("PF", ""): [
        judge.Extra(
            before="QUERY_HCA_CAP",
            command=judge.Command(0, "ACCESS_REG", 0x805, 0, 32, 32),
            reason="a physical function is told the byte order of the host, register 0x7004",
        )
    ],
}
ALLOWED = {
    "VF": [
        judge.Allowed(
            r"mlx5_core \S+ mlx5_eth_supported:\d+:\(pid \d+\): Missing eth_net_offloads capability$",
            "the profile has no Ethernet, which the driver says each time that it looks which of its parts the function has",
        )
    ],
}
ALLOWED["PF"] = [
    *ALLOWED["VF"],
    judge.Allowed(
        r"mlx5_core \S+ mlx5_pci_vsc_init:\d+:\(pid \d+\): Failed to get valid vendor specific ID$",
        "the model has no vendor specific PCI capability; the driver needs it for dumps of a crashed device only",
    ),
]


def run(lab: Lab) -> list[Row]:
    """A row for each kernel and device id, and one that shows that a failing run is seen as failing."""
    combinations = {
        f"kernel {kernel.version} {device}": partial(bind_and_leave, lab, kernel, device)
        for kernel in lab.kernels
        for device in DEVICES
    }
    control = f"kernel {lab.kernels[0].version} VF, INIT_HCA fails: noticed"
    return lab.rows("core", combinations | {control: partial(notice, lab, lab.kernels[0])})


def expected(kernel: Kernel, device: str) -> list[judge.Command]:
    """The commands of this combination."""
    extras = [e for (d, version), more in EXTRAS.items() for e in more if d == device and kernel.version.startswith(version)]
    return judge.expected_commands(judge.recorded_commands(RECORDED.read_text(encoding="utf-8")), extras)


def play(lab: Lab, kernel: Kernel, device: str, name: str, *args: str) -> tuple[guest.GuestRun, ModelRun]:
    """Boots a guest with the function and runs core.sh in it."""
    initrd = lab.initrd(kernel, (HERE / "core.sh").read_text(encoding="utf-8"), ["mlx5_core"])
    with lab.serve(name, "--profile", "core", "--device-id", DEVICES[device], *args) as served:
        result = lab.guest(name, guest.linux(kernel.image(), initrd) + guest.function_device(served.socket))
        return result, served.finish()


def bind_and_leave(lab: Lab, kernel: Kernel, device: str) -> list[str]:
    """One combination; everything about it must be as it should."""
    result, served = play(lab, kernel, device, f"core-{kernel.name}-{device}")
    faults = faults_of(kernel, device, result, served)
    return [f"the logs are {result.log} and its neighbours", *faults] if faults else []


def faults_of(kernel: Kernel, device: str, result: guest.GuestRun, served: ModelRun) -> list[str]:
    """What was wrong with a run."""
    marks = [f"userspace {kernel.version}", f"function 0x{DEVICES[device]}", "driver mlx5_core", "driver none", "module gone",
             "dmesg-begin", "dmesg-end", "done"]  # fmt: skip
    faults = judge.mark_faults(result.marks(), marks)
    if result.exit_code != 0:
        faults.append("the guest did not power off in time" if result.exit_code is None else f"QEMU ended with {result.exit_code}")
    faults += judge.dmesg_faults(judge.dmesg(result.serial), ALLOWED[device])
    faults += judge.trace_faults(served.trace, expected(kernel, device))
    return faults + judge.report_faults(served)


def notice(lab: Lab, kernel: Kernel) -> list[str]:
    """The judge's own check: with a command that fails, guest, kernel log and trace must all tell of it."""
    result, served = play(lab, kernel, "VF", "core-noticed", "--fault", "status:INIT_HCA=3")
    faults = faults_of(kernel, "VF", result, served)
    needed = ("the guest: -driver mlx5_core", "the kernel logged: .*INIT_HCA", "a command failed: .*INIT_HCA")
    missed = [n for n in needed if not any(re.match(n, fault) for fault in faults)]
    return [f"nobody noticed {m!r}; the logs are {result.log} and its neighbours" for m in missed]
