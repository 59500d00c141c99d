"""Brings QEMU, busybox and the guest kernels into the cache, or takes the files that the environment names."""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import apt
import processes
from errors import LabError

# Which kernels, by the name they have here: the suite to take Debian's package of the newest cloud kernel from.
KERNELS = {"6.12": apt.RELEASE, "newest": apt.BACKPORTS}
KERNEL_PACKAGE = "linux-image-cloud-amd64"
# Kernels are one package or split up into several; what else they need is for an installed system.
KERNEL_PARTS = re.compile(r"linux-(image|binary|modules|base)-\d")
TOOLS = ["qemu-system-x86", "busybox-static", "zstd"]
QEMU_MINIMUM = (10, 1)
# Changes whenever folders in the cache get another content.
LAYOUT = "1"


@dataclass(frozen=True)
class Tools:
    """Programs of the lab: how to start QEMU, and zstd where there is one; a static busybox."""

    qemu: list[str]
    zstd: list[str] | None
    busybox: Path


@dataclass(frozen=True)
class KernelFiles:
    """The files of a kernel."""

    name: str
    """What the lab calls it."""
    image: Path
    """A bzImage or vmlinux."""
    modules: Path
    """Its folder lib/modules/VERSION."""
    derived: Path
    """Where files made from these may be kept."""


def cache_folder() -> Path:
    """MLX5_LAB_CACHE, or `mlx5-lab` in the user's cache folder, which clones of the project share."""
    named = os.environ.get("MLX5_LAB_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(named) if named else base / "mlx5-lab").absolute() / LAYOUT


def provision(cache: Path, say: Callable[[str], None]) -> tuple[Tools, list[KernelFiles]]:
    """Fetches what is not there yet. A second run finds everything and needs no network."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise LabError("the lab runs on Linux on x86-64 only")
    cache.mkdir(parents=True, exist_ok=True)
    own_qemu, own_kernel = os.environ.get("MLX5_LAB_QEMU"), os.environ.get("MLX5_LAB_KERNEL")
    tools = named_tools(own_qemu) if own_qemu else None
    kernels = [named_kernel(Path(own_kernel), cache)] if own_kernel else []
    parts = ([] if tools else ["tools"]) + ([] if kernels else [f"kernel-{name}" for name in KERNELS])
    with locked(cache / "lock"):
        missing = [part for part in parts if not (cache / part).is_dir()]
        if missing:
            fetch(cache, missing, say)
    if not tools:
        tools = unpacked_tools(cache / "tools")
        check_qemu(tools.qemu)
    return tools, kernels or [unpacked_kernel(cache, name) for name in KERNELS]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One run at a time fills the cache; another one waits for it."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch(cache: Path, parts: list[str], say: Callable[[str], None]) -> None:
    """Fetches folders of the cache, side by side. A folder gets its name once it is complete."""
    for left in cache.glob("fetching-*"):
        shutil.rmtree(left, ignore_errors=True)
    apt.need_tools()
    say(f"fetching {', '.join(parts)} into {cache}")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as name:
        work = Path(name)
        source = apt.Apt(work / "apt", apt.find_source())

        def one(part: str) -> None:
            root = work / part
            if part == "tools":
                source.fetch_with_dependencies(apt.BACKPORTS, TOOLS, root)
            else:
                fetch_kernel(source, KERNELS[part.removeprefix("kernel-")], root)
            root.rename(cache / part)

        processes.together([partial(one, part) for part in parts])


def fetch_kernel(source: apt.Apt, suite: str, root: Path) -> None:
    """Fetches the newest cloud kernel of a suite, from as many packages as it is made of."""
    packages = [p for p in source.closure(suite, KERNEL_PACKAGE) if KERNEL_PARTS.match(p[0])]
    if not packages:
        raise LabError(f"{KERNEL_PACKAGE} of {suite} names no kernel package")
    source.fetch(packages, root)


def unpacked_tools(root: Path) -> Tools:
    """The tools in an unpacked root, run through that root's own loader and libraries."""
    loader = [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / "usr/lib/x86_64-linux-gnu")]
    data = [
        word for name in ("share/qemu", "share/seabios", "lib/ipxe/qemu") for word in ("-L", str(root / "usr" / name))
    ]
    return Tools(
        qemu=[*loader, str(root / "usr/bin/qemu-system-x86_64"), *data],
        zstd=[*loader, str(root / "usr/bin/zstd")],
        busybox=root / "usr/bin/busybox",
    )


def named_tools(qemu: str) -> Tools:
    """MLX5_LAB_QEMU, with MLX5_LAB_BUSYBOX or the machine's busybox, and the machine's zstd."""
    check_qemu([qemu])
    busybox = os.environ.get("MLX5_LAB_BUSYBOX") or shutil.which("busybox")
    if not busybox or not os.access(busybox, os.X_OK):
        what = f"{busybox} is no program" if busybox else "there is no busybox"
        raise LabError(f"MLX5_LAB_QEMU is set but {what}: set MLX5_LAB_BUSYBOX to a static one")
    zstd = shutil.which("zstd")
    return Tools(qemu=[qemu], zstd=[zstd] if zstd else None, busybox=Path(busybox))


def check_qemu(qemu: list[str]) -> None:
    """QEMU must run, be new enough for vfio-user-pci, and have been built with it."""
    _, out, err = processes.run([*qemu, "--version"])
    said = out.decode(errors="replace") + err
    version = re.search(r"version (\d+)\.(\d+)", said)
    if not version or (int(version[1]), int(version[2])) < QEMU_MINIMUM:
        raise LabError(
            f"QEMU {'.'.join(map(str, QEMU_MINIMUM))} or newer is needed, for vfio-user-pci. This one says: "
            f"{said.strip().splitlines()[0] if said.strip() else 'nothing'}"
        )
    _, out, err = processes.run([*qemu, "-device", "vfio-user-pci,help"])
    if b"socket" not in out:
        raise LabError(f"{qemu[0]} was built without the device vfio-user-pci. It says: {err.strip() or 'nothing'}")


def named_kernel(image: Path, cache: Path) -> KernelFiles:
    """MLX5_LAB_KERNEL, with MLX5_LAB_MODULES: its folder lib/modules/VERSION."""
    modules = Path(os.environ.get("MLX5_LAB_MODULES", ""))
    if not image.is_file() or not (modules / "modules.builtin").is_file():
        raise LabError(
            "MLX5_LAB_KERNEL must name a bzImage or vmlinux, and MLX5_LAB_MODULES its folder lib/modules/VERSION"
        )
    # Two builds of one version are two kernels.
    key = hashlib.sha256(f"{image.absolute()}\n{modules.absolute()}".encode()).hexdigest()[:12]
    derived = cache / f"kernel-own-{key}"
    derived.mkdir(exist_ok=True)
    return KernelFiles(name="own", image=image, modules=modules, derived=derived)


def unpacked_kernel(cache: Path, name: str) -> KernelFiles:
    """A kernel in the cache."""
    root = cache / f"kernel-{name}"
    modules = [path.parent for path in (root / "usr/lib/modules").glob("*/modules.builtin")]
    if len(modules) != 1:
        raise LabError(f"{root} holds {len(modules)} kernels, not one: remove the folder to have it fetched again")
    images = [*modules[0].glob("vmlinuz"), *(root / "boot").glob("vmlinuz-*")]
    if not images:
        raise LabError(f"{root} holds no kernel image: remove the folder to have it fetched again")
    return KernelFiles(name=name, image=images[0], modules=modules[0], derived=root)
