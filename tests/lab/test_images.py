"""Modules come in the order in which they can be loaded; archives have the form that the kernel reads."""

import lzma
import os
import tempfile
import unittest
from pathlib import Path

import initramfs
from errors import LabError
from kernels import Kernel, bzimage_payload, dependencies
from provision import KernelFiles, Tools


def module(*needed: str) -> bytes:
    """What matters here of a module: the words of its section .modinfo."""
    return b"\x7fELF\0license=GPL\0depends=" + ",".join(needed).encode() + b"\0name=any\0"


class Modules(unittest.TestCase):
    """Kernel.modules"""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = Path(folder.name) / "6.12.0-test"
        (root / "kernel").mkdir(parents=True)
        for name, needed in {"a-b": ["c", "d"], "c": ["d"], "d": ["built_in"], "e": ["missing"]}.items():
            (root / "kernel" / f"{name}.ko").write_bytes(module(*needed))
        (root / "modules.builtin").write_text("kernel/drivers/built-in.ko\n", encoding="utf-8")
        self.root = root
        files = KernelFiles("test", root / "vmlinuz", root, root)
        self.kernel = Kernel(files, Tools(qemu=[], zstd=None, busybox=root))

    def test_what_a_module_needs_comes_before_it_and_once(self) -> None:
        self.assertEqual([path.stem for path in self.kernel.modules(["a-b", "c"])], ["d", "c", "a-b"])

    def test_a_built_in_module_is_no_file(self) -> None:
        self.assertEqual(self.kernel.modules(["built_in"]), [])

    def test_a_missing_module_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "6.12.0-test has no module missing"):
            self.kernel.modules(["e"])

    def test_a_module_that_was_built_again_is_unpacked_again(self) -> None:
        packed = self.root / "kernel" / "f.ko.xz"
        for age, text in ((100, b"first"), (0, b"second")):
            packed.write_bytes(lzma.compress(module() + text))
            now = self.root.stat().st_mtime_ns + 10**9
            os.utime(packed, ns=(now, now - age * 10**9))
            kernel = Kernel(self.kernel._files, Tools(qemu=[], zstd=None, busybox=self.root))
            self.assertTrue(kernel.modules(["f"])[0].read_bytes().endswith(text))

    def test_a_module_that_needs_nothing(self) -> None:
        self.assertEqual(dependencies(module()), [])


class Images(unittest.TestCase):
    """Kernel images and archives."""

    def test_what_is_no_kernel_is_refused(self) -> None:
        boot_sector = bytes(0x1FE) + b"\x55\xaa" + bytes(0x1000)
        for data in (bytes(0x1000), boot_sector):
            with self.assertRaisesRegex(LabError, "neither"):
                bzimage_payload(data)

    def test_an_archive_lists_folders_before_files_and_ends(self) -> None:
        archive = initramfs.Archive()
        archive.file("a/b/c", b"12345", initramfs.PROGRAM)
        archive.file("a/d", b"")
        data, names, at = archive.bytes(), [], 0
        while at < len(data):
            self.assertEqual(data[at : at + 6], b"070701")
            mode, size, length = (int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in (1, 6, 11))
            names.append((data[at + 110 : at + 110 + length - 1].decode(), oct(mode), size))
            at += 110 + length
            at += -at % 4 + size
            at += -at % 4
        folders = [("a", "0o40755", 0), ("a/b", "0o40755", 0)]
        files = [("a/b/c", "0o100755", 5), ("a/d", "0o100644", 0)]
        self.assertEqual(names, [*folders, *files, ("TRAILER!!!", "0o0", 0)])


if __name__ == "__main__":
    unittest.main()
