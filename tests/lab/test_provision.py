"""What the environment names is checked before anything is fetched."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import provision
from errors import LabError

# A QEMU that answers the questions of the lab; %s: its version, what it says of the device.
QEMU = """\
#!/bin/sh
case "$1" in
--version) echo "QEMU emulator version %s" ;;
-device) %s ;;
esac
"""
HAS_IT = "echo 'vfio-user-pci options:'; echo '  socket=<SocketAddress>'"
LACKS_IT = "echo \"Device 'vfio-user-pci' not found\" >&2; exit 1"


class Named(unittest.TestCase):
    """MLX5_LAB_QEMU, MLX5_LAB_BUSYBOX, MLX5_LAB_KERNEL, MLX5_LAB_MODULES"""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, name: str, text: str) -> str:
        """A program in the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def tools(self, version: str, device: str, busybox: str) -> provision.Tools:
        """What is made of a QEMU and a busybox."""
        with mock.patch.dict(os.environ, {"MLX5_LAB_BUSYBOX": busybox}):
            return provision.named_tools(self.program("qemu", QEMU % (version, device)))

    def test_a_new_qemu_with_the_device_is_taken(self) -> None:
        busybox = self.program("busybox", "#!/bin/sh\n")
        self.assertEqual(self.tools("10.1.0 (Debian)", HAS_IT, busybox).busybox, Path(busybox))

    def test_an_old_qemu_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "10.1 or newer is needed.*version 10.0.2"):
            self.tools("10.0.2", HAS_IT, "unused")

    def test_a_qemu_without_the_device_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "without the device vfio-user-pci.*not found"):
            self.tools("10.2.0", LACKS_IT, "unused")

    def test_a_busybox_that_is_missing_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "/missing is no program: set MLX5_LAB_BUSYBOX"):
            self.tools("10.2.0", HAS_IT, "/missing")

    def test_a_kernel_without_its_modules_is_refused(self) -> None:
        image = self.folder / "vmlinuz"
        image.touch()
        with mock.patch.dict(os.environ, {"MLX5_LAB_MODULES": str(self.folder)}):
            with self.assertRaisesRegex(LabError, "MLX5_LAB_MODULES its folder"):
                provision.named_kernel(image, self.folder)

    def test_two_kernels_of_one_version_are_kept_apart(self) -> None:
        derived = set()
        for build in ("a", "b"):
            modules = self.folder / build / "6.12.0"
            modules.mkdir(parents=True)
            for file in ("vmlinuz", "modules.builtin"):
                (modules / file).touch()
            with mock.patch.dict(os.environ, {"MLX5_LAB_MODULES": str(modules)}):
                derived.add(provision.named_kernel(modules / "vmlinuz", self.folder).derived)
        self.assertEqual(len(derived), 2)


if __name__ == "__main__":
    unittest.main()
