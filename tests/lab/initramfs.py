"""Writes initramfs images: an uncompressed cpio archive of the form newc."""

from pathlib import Path

DIRECTORY = 0o040755
PROGRAM = 0o100755
FILE = 0o100644


class Archive:
    """A cpio archive in memory."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[str] = set()
        self._inode = 0

    def file(self, name: str, data: bytes, mode: int = FILE) -> None:
        """Adds a file, and the folders above it."""
        parents = name.split("/")[:-1]
        for depth in range(len(parents)):
            folder = "/".join(parents[: depth + 1])
            if folder not in self._folders:
                self._folders.add(folder)
                self._entry(folder, b"", DIRECTORY)
        self._entry(name, data, mode)

    def _entry(self, name: str, data: bytes, mode: int) -> None:
        self._inode += 1
        path = name.encode() + b"\0"
        # ino, mode, uid, gid, nlink, mtime, size, device (2), special device (2), length of the name, checksum
        numbers = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % n for n in numbers) + path
        self._parts += [padded(head), padded(data)]

    def bytes(self) -> bytes:
        """The archive with its end mark."""
        self._entry("TRAILER!!!", b"", 0)
        return b"".join(self._parts)


def padded(data: bytes) -> bytes:
    """`data` up to the next multiple of four bytes."""
    return data + bytes(-len(data) % 4)


def build(target: Path, busybox: Path, init: Path, script: str, modules: list[Path], files: dict[str, Path]) -> None:
    """An image that loads nothing by itself: `init` runs `script`, which finds the modules by /modules/order.

    `files` are programs by their places in the image.
    """
    archive = Archive()
    archive.file("bin/busybox", busybox.read_bytes(), PROGRAM)
    archive.file("init", init.read_bytes(), PROGRAM)
    archive.file("job.sh", script.encode(), PROGRAM)
    for module in modules:
        archive.file(f"modules/{module.name}", module.read_bytes())
    archive.file("modules/order", "".join(f"{m.stem}\n" for m in modules).encode())
    for place, file in files.items():
        archive.file(place, file.read_bytes(), PROGRAM)
    target.write_bytes(archive.bytes())
