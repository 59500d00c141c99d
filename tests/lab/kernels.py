"""A guest kernel: the image to boot, and its modules in the order in which they must be loaded."""

import lzma
import os
import re
import struct
from pathlib import Path

import processes
from errors import LabError
from provision import KernelFiles, Tools

ELF = b"\x7fELF"
ZSTD = b"\x28\xb5\x2f\xfd"


class Kernel:
    """A kernel that guests boot."""

    def __init__(self, files: KernelFiles, tools: Tools):
        self.name = files.name
        self.version = files.modules.absolute().name
        self._files = files
        self._zstd = tools.zstd
        self._paths = {module_name(path): path for path in files.modules.rglob("*.ko*")}
        builtin = (files.modules / "modules.builtin").read_text(encoding="utf-8").split()
        self._builtin = {module_name(Path(line)) for line in builtin}

    def image(self) -> Path:
        """The file to boot: an ELF image where one can be had, since it needs no slow decompression in the guest."""
        data = self._files.image.read_bytes()
        vmlinux = self._files.derived / "vmlinux"
        if data[:4] == ELF:
            return self._files.image
        if not is_made_from(vmlinux, self._files.image):
            payload = bzimage_payload(data)
            if payload[:4] != ZSTD or not self._zstd:
                return self._files.image
            elf = self._decompress(payload)
            if elf[:4] != ELF:
                raise LabError(f"{self._files.image}: what it holds is no ELF image")
            write_whole(vmlinux, elf)
        return vmlinux

    def modules(self, wanted: list[str]) -> list[Path]:
        """The files of these modules and of those that they need, uncompressed, in loading order."""
        order: list[str] = []
        for name in wanted:
            self._add(name.replace("-", "_"), order)
        return [self._module(name) for name in order]

    def _add(self, name: str, order: list[str]) -> None:
        if name in order or name in self._builtin:
            return
        if name not in self._paths:
            raise LabError(f"kernel {self.version} has no module {name}")
        for needed in dependencies(self._module(name).read_bytes()):
            self._add(needed, order)
        order.append(name)

    def _module(self, name: str) -> Path:
        source = self._paths[name]
        if source.suffix == ".ko":
            return source
        plain = self._files.derived / "ko" / f"{name}.ko"
        if not is_made_from(plain, source):
            plain.parent.mkdir(exist_ok=True)
            data = source.read_bytes()
            write_whole(plain, lzma.decompress(data) if source.suffix == ".xz" else self._decompress(data))
        return plain

    def _decompress(self, data: bytes) -> bytes:
        if not self._zstd:
            raise LabError("zstd is missing: install it, or unset MLX5_LAB_QEMU to have it fetched")
        code, out, err = processes.run([*self._zstd, "-dcq"], data)
        if code != 0:
            raise LabError(f"zstd failed: {err.strip()}")
        return out


def module_name(path: Path) -> str:
    """The name that the kernel has for the module in a file."""
    return path.name.split(".")[0].replace("-", "_")


def dependencies(module: bytes) -> list[str]:
    """The modules that an uncompressed module says it needs, from its section .modinfo."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    names = found[1].decode() if found else ""
    return [name.replace("-", "_") for name in names.split(",") if name]


def bzimage_payload(image: bytes) -> bytes:
    """The compressed kernel inside a bzImage (Documentation/arch/x86/boot.rst), less the size that follows it."""
    if image[0x202:0x206] != b"HdrS" or image[0x1FE:0x200] != b"\x55\xaa":
        raise LabError("the kernel image is neither an ELF image nor a bzImage")
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    return image[start : start + length - 4]


def is_made_from(made: Path, source: Path) -> bool:
    """Whether a file is there that was made from `source` as it is now: kernels get rebuilt in place."""
    return made.exists() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that nobody ever sees half of."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{id(data)}")
    part.write_bytes(data)
    part.rename(path)
