"""Every process of a run: each in a group of its own, ended when the run ends, however it ends."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from pathlib import Path
from typing import IO, TypeVar

from errors import LabError

T = TypeVar("T")
_lock = threading.Lock()
_live: list[subprocess.Popen[bytes]] = []
_closed = False
_first_failure: BaseException | None = None


def start(
    command: list[str],
    stdout: IO[bytes] | int,
    stderr: int = subprocess.STDOUT,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program; the arguments are those of `subprocess.Popen`."""
    with _lock:
        if _closed:
            raise LabError("the run is being ended")
        try:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env, start_new_session=True
            )
        except OSError as error:
            raise LabError(f"{command[0]} does not start: {error}") from error
        _live.append(process)
    return process


def run(
    command: list[str], data: bytes = b"", cwd: Path | None = None, env: dict[str, str] | None = None
) -> tuple[int, bytes, str]:
    """Runs a program to its end with `data` as input: exit code, what it wrote to stdout, and to stderr."""
    process = start(command, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE, cwd, env)
    try:
        out, err = process.communicate(data)
    finally:
        end(process)
    return process.returncode, out, err.decode(errors="replace")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a process and its group."""
    with _lock:
        if process in _live:
            _live.remove(process)
    kill_group(process)


def end_all() -> None:
    """Kills every process, and lets no new one start."""
    global _closed
    with _lock:
        _closed = True
        left = list(_live)
        _live.clear()
    for process in left:
        kill_group(process)


def fail(error: BaseException) -> BaseException:
    """Ends the run; returns its first failure, since those that come later may be its consequences only."""
    global _first_failure
    with _lock:
        _first_failure = _first_failure or error
    end_all()
    return _first_failure


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
    limit = time.monotonic() + seconds
    while not path.exists():
        if process.poll() is not None or time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def together(calls: list[Callable[[], T]]) -> list[T]:
    """Makes the calls, as many at once as there are processors, and returns their results in order.

    The first that fails, or an interrupt, ends the run: everything that still runs is killed.
    """
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        futures = [pool.submit(call) for call in calls]
        try:
            done, _ = wait_futures(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            raise fail(error)  # noqa: B904
