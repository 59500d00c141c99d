"""Job `vfio`: the project's tool and driver on Linux VFIO in a guest, behind emulated IOMMUs."""

import functools
from collections.abc import Callable

import guest
import vfio_faults
import vfio_guest
import vfio_matrix
import vfio_obstacles
import vfio_ports
from kernels import Kernel
from lab import Lab, Row
from vfio_guest import INTEL, VIRTIO, Expect, Iommu

PACKAGES = ["mlx5-vfio", "mlx5-lab-probe"]
GROUND = {
    "VFIO loads": Expect(),
    "a function is bound by hand": Expect(),
    "another function is bound by hand": Expect(),
    "a foreign device is bound by hand": Expect(),
    "groups": Expect(says=[r"^functions (?!(\d+) \1$)\d+ \d+$", "^DMA"]),
    "device nodes": Expect(),
    "a user without access": Expect(says=["may not open"]),
    "a user with access": Expect(says=["may open"]),
    "a limit of locked memory": Expect(says=["^64$"]),
    "huge pages": Expect(says=["HugePages_Free: +8$"]),
    "traces": Expect(says=["^interrupts 0$", "^open 0$", "bus master of 0000:01:00.0: 0"]),
    "a function that is gone": Expect(says=["ff ff ff ff"]),
}


def run(lab: Lab) -> list[Row]:
    """The rows of all scenes."""
    programs = lab.static(*PACKAGES)
    # The longest come first, so that none runs alone in the end.
    scenes: dict[str, Callable[[], list[Row]]] = {}
    for module in (vfio_matrix, vfio_faults, vfio_obstacles, vfio_ports):
        scenes |= module.scenes(lab, programs)
    scenes |= {
        f"{kernel.name} {iommu.name} ground": functools.partial(ground, lab, kernel, iommu)
        for kernel, iommu in zip(lab.kernels, (INTEL, VIRTIO))
    }
    return lab.scenes("vfio", scenes)


def ground(lab: Lab, kernel: Kernel, iommu: Iommu) -> list[Row]:
    """What a guest must have for the other scenes to mean anything."""
    scene = f"{kernel.name} {iommu.name} ground"
    log = f"vfio-ground-{kernel.name}-{iommu.name}"
    with lab.serve(f"{log}-0") as first, lab.serve(f"{log}-1") as second:
        devices = [*guest.function_devices(first.socket, second.socket), "-device", "edu"]
        with vfio_guest.boot(lab, log, kernel, "vfio_ground.sh", devices, {}, iommu) as running:
            running.wait_mark("kill the model")
            running.lose(first)
            running.say("done")
            return vfio_guest.step_rows("vfio", scene, running.abandon(), GROUND)
