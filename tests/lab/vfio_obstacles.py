"""Scenes of job `vfio`: each obstacle that a guest can have is made, and what the tool says of it is checked."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import guest
import judge
import vfio_guest
from lab import Lab, Row
from model import ModelRun
from vfio_guest import INTEL, KERNEL_LOG, NONE, PATIENCE, SELFTEST, VFIO, Expect

OWN, BOOTS, GONE, HUGE = r"0000:01:00\.0", r"0000:02:00\.0", r"0000:03:00\.0", r"0000:04:00\.0"
MATE_0, MATE_1, UNRESET = r"0000:05:00\.0", r"0000:05:00\.1", r"0000:06:00\.0"
IOMMU_ON = "switch on VT-d, AMD-Vi or SMMU in the BIOS.* intel_iommu=on"


def refused(*says: str, code: int = 1) -> Expect:
    """A command that fails with one message, in which all of these are."""
    return Expect(code, [r"\Aerror: ", *says], not_says=["panick"])


# What the driver says once the function is open: the limit of `ulimit -l 3072`, and more than that.
LOCKED = r"the process may lock 3145728 bytes of memory, and (314[6-9]|31[5-9]\d|3[2-9]\d\d|[4-9]\d{3})\d{3} are needed"
WORKS = Expect(says=["^  result +passed"])
NO_IOMMU = {
    "list": Expect(says=[f"no IOMMU stands between {OWN} and memory.*{IOMMU_ON}"]),
    "pingpong": refused(f"no IOMMU stands between {OWN} and memory.*{IOMMU_ON}"),
    "bind": refused(f"no IOMMU stands between {OWN} and memory.*{IOMMU_ON}"),
    "the driver stays": Expect(says=["^none$"]),
    "kernel log": KERNEL_LOG,
}
OBSTACLES = {
    "no such function": refused(r"there is no PCI function 0000:7f:00\.0", "`mlx5 list`"),
    "no address": refused("7f:00", "0000:03:00.0", code=2),
    "no VFIO: pingpong": refused("VFIO is not loaded", "`modprobe vfio-pci`"),
    "no VFIO: bind": refused("VFIO is not loaded", "`modprobe vfio-pci`"),
    "no IOMMU module of VFIO: bind": Expect(says=[f"^{OWN}: from no driver to vfio-pci"]),
    "no IOMMU module of VFIO: pingpong": refused("`modprobe vfio_iommu_type1`"),
    "not bound, no driver": refused(f"no driver holds {BOOTS}", f"`mlx5 bind {BOOTS}`"),
    "firmware that never boots: bind": Expect(),
    "firmware that never boots: pingpong": Expect(1, ["^error: .*firmware did not become ready in time; wait.*--firmware-wait"]),
    "a foreign device: bind": refused(r"0000:00:0\w\.0 is 1234:11e8, no mlx5 function", "`mlx5 list`"),
    "a foreign device: pingpong": refused(r"0000:00:0\w\.0 is 1234:11e8, no mlx5 function", "`mlx5 list`"),
    "too few vectors": refused(f"{OWN} has 32 interrupt vectors, and 64 are asked for", "--vectors 32"),
    "as many vectors as there are": WORKS,
    "too few files": refused("Too many open files|EMFILE|errno 24", "`ulimit -n`"),
    "no node": refused(r"the function is bound, and /dev/vfio/\d+ is missing", "udev", "container"),
    "busy: pingpong": refused(rf"{OWN} is in use, sleep \(pid \d+\) has IOMMU group \d+ open"),
    "busy: list": Expect(says=[rf"{OWN} is in use, sleep \(pid \d+\)"]),
    "busy: unbind": refused(rf"{OWN} is in use, sleep \(pid \d+\) has IOMMU group \d+ open"),
    "busy no longer": WORKS,
    "no permission: pingpong": refused(r"no permission to open /dev/vfio/\d+", r"chown \$USER /dev/vfio/\d+", "udev"),
    "no permission: bind": refused("no permission to write to /", "root"),
    "locked memory": refused("may lock 65536 bytes of memory, and [0-9]{5,} are needed", "ulimit -l"),
    "locked memory while it runs: pingpong": Expect(1, [LOCKED]),
    "locked memory while it runs: memory of the program": Expect(1, [LOCKED]),
    "no permission: container": refused("no permission to open /dev/vfio/vfio", "chmod 666"),
    "permission: pingpong": WORKS,
    "permission: selftest": Expect(says=[SELFTEST]),
    "unreset: bind": Expect(),
    "unreset: pingpong": refused(f"no way to reset {UNRESET}", "FLR"),
    "registers without a place: bind": Expect(),
    "registers without a place: pingpong": refused(rf"registers of {HUGE} \(BAR 0\) cannot be mapped", "Above 4G"),
    "group: one bound, no driver on the other": Expect(says=[f"^{MATE_0}: from no driver to vfio-pci"]),
    "group: opened all the same": WORKS,
    "group: the other's driver": Expect(says=["^mlx5_core$"]),
    "group: not viable": refused(rf"IOMMU group \d+ is given away only as a whole.* {MATE_1}.*mlx5_core"),
    "group: not viable, list": Expect(says=[rf"{MATE_0} +IOMMU group \d+ is given away only as a whole"]),
    "not bound, another driver": refused(f"mlx5_core holds {MATE_1}, not vfio-pci", f"`mlx5 bind {MATE_1}`"),
    "group: bind the other": Expect(says=[f"^{MATE_1}: from mlx5_core to vfio-pci"], not_says=["Not enough"]),
    "group: viable": WORKS,
    "group: the second function of it": refused(rf"{MATE_1} is in use, mlx5 \(pid \d+\) has IOMMU group \d+ open"),
    "unbind: to the driver before": Expect(says=[f"^{MATE_1}: from VFIO to mlx5_core$"]),
    "unbind: done already": Expect(says=[f"VFIO does not have {MATE_1}: mlx5_core holds it"]),
    "gone: bind": Expect(),
    "gone: list": Expect(says=[f"{GONE} does not answer.*all ones"]),
    "gone: pingpong": refused(f"{GONE} does not answer, it reads as all ones"),
    "gone: the others work": WORKS,
    "kernel log": KERNEL_LOG,
}


def scenes(lab: Lab, programs: dict[str, Path]) -> dict[str, Callable[[], list[Row]]]:
    """A machine without an IOMMU, and one with functions of many kinds."""
    return {"no IOMMU": partial(no_iommu, lab, programs), "obstacles": partial(obstacles, lab, programs)}


def no_iommu(lab: Lab, programs: dict[str, Path]) -> list[Row]:
    """A machine without an IOMMU."""
    with lab.serve("vfio-no-iommu") as served:
        devices = guest.function_devices(served.socket)
        kernel = lab.kernels[0]
        with vfio_guest.boot(lab, "vfio-no-iommu", kernel, "vfio_no_iommu.sh", devices, programs, NONE) as running:
            rows = vfio_guest.step_rows("vfio", "no IOMMU", running.finish(), NO_IOMMU)
        faults = judge.report_faults(served.finish())
    return [*rows, Row("vfio", "no IOMMU: the model's report", faults, 0)]


def obstacles(lab: Lab, programs: dict[str, Path]) -> list[Row]:
    """A machine with everything that may be in the way."""
    kernel = lab.kernels[0]
    # There is no room for a BAR of a terabyte.
    own = [[], ["--fault", "never-boots"], [], ["--bar-size", "1024G"]]
    served = [*own, [], [], ["--no-flr"], ["--no-flr"]]
    with ExitStack() as stack:
        models = [stack.enter_context(lab.serve(f"vfio-obstacles-{n}", *args)) for n, args in enumerate(served)]
        sockets = [model.socket for model in models]
        devices = [
            *guest.function_devices(*sockets[:4]),
            *guest.one_group(*sockets[4:6], number=0),
            *guest.one_group(*sockets[6:8], number=1),
            *("-device", "edu"),
        ]
        # VFIO's modules are loaded in two steps, and Linux's driver late.
        modules = [*reversed(VFIO), "mlx5_core"]
        running = stack.enter_context(
            vfio_guest.boot(lab, "vfio-obstacles", kernel, "vfio_obstacles.sh", devices, programs, INTEL, modules)
        )
        running.wait_mark("kill the model", PATIENCE)
        running.lose(models[2])
        running.say("done")
        rows = vfio_guest.step_rows("vfio", "obstacles", running.abandon(), OBSTACLES)
        faults = [f for number, model in enumerate(models) if number != 2 for f in left(number, model.finish())]
    return [*rows, Row("vfio", "obstacles: the models' reports", faults, 0)]


def left(number: int, run: ModelRun) -> list[str]:
    """What is wrong with a function's account. Linux's driver still holds number 5 at the end."""
    if number == 5:
        return [] if run.exit_code == 0 else [f"function {number} ended with {run.exit_code}: {run.report}"]
    return [f"function {number}: {fault}" for fault in judge.report_faults(run)]
