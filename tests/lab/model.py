"""Builds and starts `mlx5-model serve`, and collects its report and its trace."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cargo
import processes
from errors import LabError


def build(project: Path, say: Callable[[str], None]) -> Path:
    """The program: MLX5_LAB_MODEL, or built from the project."""
    named = os.environ.get("MLX5_LAB_MODEL")
    if named:
        if not os.access(named, os.X_OK):
            raise LabError(f"MLX5_LAB_MODEL={named} is no program")
        return Path(named)
    say("building mlx5-model")
    programs = cargo.build(project, ["-p", "mlx5-model"], ", or set MLX5_LAB_MODEL to a built mlx5-model")
    if len(programs) != 1:
        raise LabError(f"cargo built {len(programs)} programs in mlx5-model, not one")
    return programs[0]


@dataclass(frozen=True)
class ModelRun:
    """How a served function ended."""

    exit_code: int | None
    """0: no violations. None: it was still serving after its client had gone."""
    report: str
    trace: str


class Model:
    """A running `mlx5-model serve`; a context manager that ends it."""

    def __init__(self, program: Path, base: Path, socket: Path, args: list[str]):
        """Starts the program and waits for its socket. `base` is the beginning of the names of its files."""
        self.socket = socket
        self._log = base.with_name(base.name + ".model.log")
        self._report = base.with_name(base.name + ".report.log")
        self._trace = base.with_name(base.name + ".trace.log")
        for left in (self._report, self._trace):
            left.unlink(missing_ok=True)
        files = ["--socket", str(socket), "--trace", str(self._trace), "--report", str(self._report)]
        with open(self._log, "wb") as sink:
            self._process = processes.start([str(program), "serve", *files, *args], sink)
        if not processes.wait_for_path(socket, self._process, 10):
            processes.end(self._process)
            raise LabError(f"mlx5-model serves nothing: {read(self._log).strip() or 'no word from it'}")

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)
        self.socket.unlink(missing_ok=True)

    def report(self, seconds: float = 10) -> str:
        """The report as it is now, while it goes on serving."""
        self._report.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        if not processes.wait_for_path(self._report, self._process, seconds):
            raise LabError(f"mlx5-model wrote no report; see {self._log}")
        return read(self._report)

    def kill(self) -> None:
        """Ends the program as kill -9 does: to the guest the function is gone from its bus."""
        processes.end(self._process)

    def finish(self, seconds: float = 10) -> ModelRun:
        """Waits for the end, which comes when the client disconnects, and returns what it reported."""
        ended = processes.wait(self._process, seconds)
        processes.end(self._process)
        report = read(self._report) or read(self._log)
        return ModelRun(self._process.returncode if ended else None, report, read(self._trace))


def read(path: Path) -> str:
    """The text of a file, '' if it is not there."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
