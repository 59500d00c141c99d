"""Job `boot`: each kernel gets to userspace. When this fails, the lab is broken, not the model."""

from functools import partial

import guest
from kernels import Kernel
from lab import Lab, Row


def run(lab: Lab) -> list[Row]:
    """One row a kernel."""
    return lab.rows("boot", {f"kernel {k.version}": partial(boot, lab, k) for k in lab.kernels})


def boot(lab: Lab, kernel: Kernel) -> list[str]:
    """Boots, and loads the driver without a device."""
    initrd = lab.initrd(kernel, "load_modules", ["mlx5_core"])
    result = lab.guest(f"boot-{kernel.name}", guest.linux(kernel.image(), initrd))
    wanted = [f"userspace {kernel.version}", "done"]
    if result.exit_code == 0 and result.marks() == wanted:
        return []
    return [f"the guest said {result.marks()}, not {wanted}; exit code {result.exit_code}; see {result.log}"]
