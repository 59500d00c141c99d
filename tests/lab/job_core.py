"""Job `core`: unmodified mlx5_core binds to the profile `core` and leaves it, a virtual and a physical function."""

import re
from collections.abc import Callable
from functools import partial

import guest
import judge
from kernels import Kernel
from lab import HERE, PROJECT, Lab, Row
from model import ModelRun
from vfio_guest import INTEL

DEVICES = {"VF": "1018", "PF": "1017"}
RECORDED = PROJECT / "tests" / "data" / "linux-core-only.log"

# By device: what the list of commands, recorded with a virtual function, has more. No kernel needs an entry of its own.
EXTRAS: dict[str, list[judge.Extra]] = {
    "VF": [],
    "PF": [
        judge.Extra(
            before="QUERY_HCA_CAP",
            command=judge.Command(0, "ACCESS_REG", 0x805, 0, 32, 32),
            detail="reg=0x7004 w",
            reason="a physical function is told the byte order of the host",
        )
    ],
}
NO_ETHERNET = judge.Allowed(
    r"mlx5_core \S+ mlx5_eth_supported:\d+:\(pid \d+\): Missing eth_net_offloads capability$",
    "the profile has no Ethernet, which the driver says each time that it looks which of its parts the function has",
)
NO_VENDOR_SPECIFIC = judge.Allowed(
    r"mlx5_core \S+ mlx5_pci_vsc_init:\d+:\(pid \d+\): Failed to get valid vendor specific ID$",
    "the model has no vendor specific PCI capability; the driver needs it for dumps of a crashed device only",
)
SLOW_HOST = judge.Allowed(
    r"\] (clocksource: |workqueue: \S+ hogged CPU for >)",
    "the guest gets less of the processor than it expects; nothing about the device",
)
ALLOWED = {"VF": [NO_ETHERNET, SLOW_HOST], "PF": [NO_ETHERNET, SLOW_HOST, NO_VENDOR_SPECIFIC]}


def run(lab: Lab) -> list[Row]:
    """A row for each kernel and device id, one behind an IOMMU, and one that shows that a failure is noticed."""
    first = lab.kernels[0]
    combinations: dict[str, Callable[[], list[str]]] = {
        f"kernel {kernel.version} {device}": partial(bind_and_leave, lab, kernel, device)
        for kernel in lab.kernels
        for device in DEVICES
    }
    combinations[f"kernel {first.version} VF behind an IOMMU"] = partial(bind_and_leave, lab, first, "VF", iommu=True)
    combinations[f"kernel {first.version} VF, a failing INIT_HCA is noticed"] = partial(notice, lab, first)
    return lab.rows("core", combinations)


def play(
    lab: Lab, kernel: Kernel, device: str, name: str, faults: list[str], iommu: bool
) -> tuple[guest.GuestRun, ModelRun]:
    """Boots a guest with the function and runs core.sh in it."""
    initrd = lab.initrd(kernel, (HERE / "core.sh").read_text(encoding="utf-8"), ["mlx5_core"])
    with lab.serve(name, "--profile", "core", "--device-id", DEVICES[device], *faults) as served:
        system = guest.linux(kernel.image(), initrd, INTEL.append if iommu else "")
        result = lab.guest(name, [*(INTEL.args if iommu else []), *system, *guest.function_devices(served.socket)])
        return result, served.finish()


def bind_and_leave(lab: Lab, kernel: Kernel, device: str, iommu: bool = False) -> list[str]:
    """One combination; everything about it must be as it should."""
    name = f"core-{kernel.name}-{device}" + ("-iommu" if iommu else "")
    result, served = play(lab, kernel, device, name, [], iommu)
    faults = faults_of(kernel, device, result, served, iommu)
    return [f"the logs are {result.log} and its neighbours", *faults] if faults else []


def faults_of(kernel: Kernel, device: str, result: guest.GuestRun, served: ModelRun, iommu: bool = False) -> list[str]:
    """What was wrong with a run."""
    found = [f"userspace {kernel.version}", f"function 0x{DEVICES[device]}", "iommu DMA" if iommu else "iommu none"]
    bound_and_left = ["driver mlx5_core", "driver none", "module gone", "dmesg-begin", "dmesg-end", "done"]
    faults = judge.mark_faults(result.marks(), found + bound_and_left)
    if result.exit_code is None:
        faults.append("the guest did not power off in time")
    elif result.exit_code != 0:
        faults.append(f"QEMU ended with {result.exit_code}")
    recorded = judge.recorded_commands(RECORDED.read_text(encoding="utf-8"))
    faults += judge.dmesg_faults(judge.dmesg(result.serial), ALLOWED[device])
    faults += judge.trace_faults(served.trace, judge.expected_commands(recorded, EXTRAS[device]))
    faults += judge.detail_faults(served.trace, EXTRAS[device])
    return faults + judge.report_faults(served)


def notice(lab: Lab, kernel: Kernel) -> list[str]:
    """The judge's own check: with a command that fails, guest, kernel log and trace must all tell of it."""
    result, served = play(lab, kernel, "VF", "core-noticed", ["--fault", "status:INIT_HCA=3"], iommu=False)
    faults = faults_of(kernel, "VF", result, served)
    needed = ("the guest: -driver mlx5_core", "the kernel logged: .*INIT_HCA", "a command failed: .*INIT_HCA")
    missed = [n for n in needed if not any(re.match(n, fault) for fault in faults)]
    return [f"nobody noticed {m!r}; the logs are {result.log} and its neighbours" for m in missed]
