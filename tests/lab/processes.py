"""Processes of a run: each in a group of its own, so that it can be ended with all that it started."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from errors import LabError


class Processes:
    """Every process that a run started and that may still live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def start(self, command: list[str], output: Path) -> subprocess.Popen[bytes]:
        """Starts a program without input; what it prints goes to the file `output`."""
        with self._lock, open(output, "wb") as sink:
            if self._closed:
                raise LabError("the run is being ended")
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                raise LabError(f"{command[0]} does not start: {error}") from error
            self._live.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kills what is left of a process and its group."""
        with self._lock:
            if process in self._live:
                self._live.remove(process)
                kill_group(process)

    def end_all(self) -> None:
        """Kills every process, and lets no new one start."""
        with self._lock:
            self._closed = True
            for process in self._live:
                kill_group(process)
            self._live.clear()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and those that it started, and waits for it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ended in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_path(path: Path, process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether `path` appeared in time, while `process` ran."""
    end = time.monotonic() + seconds
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
