"""What a job works with: tools, kernels, guests and served functions; and the rows of its result."""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cargo
import guest
import initramfs
import model
import processes
import provision
from errors import LabError
from kernels import Kernel

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent


@dataclass(frozen=True)
class Row:
    """One line of the result: a job, in one combination of what it varies."""

    job: str
    combination: str
    faults: list[str]
    """What is wrong; none when it passed."""
    seconds: float


class Lab:
    """The lab of one run. A job is a module `job_NAME.py` with a function `run(lab) -> list[Row]`."""

    def __init__(self, say: Callable[[str], None], only: str = ""):
        """Fetches and builds what is missing, both at once. `only`: a word in the names of the scenes to run."""
        self.say = say
        self._only = only
        self.logs = PROJECT / "target" / "lab"
        self.logs.mkdir(parents=True, exist_ok=True)
        cache = provision.cache_folder()

        def fetch() -> None:
            self.tools, files = provision.provision(cache, say)
            self.kernels = [Kernel(f, self.tools) for f in files]

        def build() -> None:
            self.model_program = model.build(PROJECT, say)

        processes.together([fetch, build])
        # Socket paths are short of room (108 bytes), so this folder is not one of the project's.
        self.temp = Path(tempfile.mkdtemp(prefix="mlx5-lab-"))
        self._numbers = itertools.count()

    def close(self, keep: bool = False) -> None:
        """Ends every process and removes the run's files, except the logs."""
        processes.end_all()
        if not keep:
            shutil.rmtree(self.temp, ignore_errors=True)

    def initrd(
        self, kernel: Kernel, script: str, modules: list[str], files: dict[str, Path] | None = None
    ) -> Path:
        """An initramfs whose init runs `script`, `modules` and what they need, and `files` by their places."""
        target = self.temp / f"{next(self._numbers)}.cpio"
        initramfs.build(target, self.tools.busybox, HERE / "init.sh", script, kernel.modules(modules), files or {})
        return target

    def serve(self, name: str, *args: str) -> model.Model:
        """Starts `mlx5-model serve` with these arguments; a context manager. `name` is for its log files."""
        socket = self.temp / f"{next(self._numbers)}.sock"
        return model.Model(self.model_program, self.logs / name, socket, list(args))

    def boot(self, name: str, args: list[str]) -> guest.Running:
        """Starts a guest with these arguments of QEMU (see `guest.linux` and `guest.function_devices`)."""
        return guest.Running(self.tools.qemu, args, self.logs / f"{name}.serial.log")

    def guest(self, name: str, args: list[str], seconds: float = 120) -> guest.GuestRun:
        """Runs a guest to its end."""
        with self.boot(name, args) as running:
            return running.finish(seconds)

    def static(self, *packages: str) -> dict[str, Path]:
        """The programs of these packages, by name, built for guests without libraries."""
        return cargo.static(PROJECT, list(packages), self.say)

    def rows(self, job: str, combinations: dict[str, Callable[[], list[str]]]) -> list[Row]:
        """Runs each combination, as many at once as there are processors. Each returns its faults."""

        def one(combination: str, call: Callable[[], list[str]]) -> list[Row]:
            start = time.monotonic()
            faults = call()
            return [Row(job, combination, faults, time.monotonic() - start)]

        return self.scenes(job, {name: partial(one, name, call) for name, call in combinations.items()})

    def scenes(self, job: str, scenes: dict[str, Callable[[], list[Row]]]) -> list[Row]:
        """Runs each scene, as many at once as there are processors. Each returns rows; one that breaks, what broke."""

        def one(scene: str, call: Callable[[], list[Row]]) -> list[Row]:
            start = time.monotonic()
            try:
                return call()
            except LabError as error:
                return [Row(job, scene, [str(error)], time.monotonic() - start)]

        rows = processes.together([partial(one, *item) for item in scenes.items() if self._only in item[0]])
        return list(itertools.chain.from_iterable(rows))
