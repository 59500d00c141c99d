"""Builds programs of the project with cargo."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import processes
from errors import LabError

TARGET = "x86_64-unknown-linux-gnu"
STATIC = "-C target-feature=+crt-static"


def build(project: Path, args: list[str], instead: str, env: dict[str, str] | None = None) -> list[Path]:
    """The programs that `cargo build --release` makes with these arguments. `instead`: what to do without cargo."""
    cargo = shutil.which("cargo")
    if not cargo:
        raise LabError(f"cargo is missing: install Rust{instead}")
    command = [cargo, "build", "--release", *args, "--message-format=json-render-diagnostics"]
    code, out, err = processes.run(command, cwd=project, env={**os.environ, **env} if env else None)
    if code != 0:
        raise LabError(f"`{' '.join(command)}` failed:\n{err[-4000:]}")
    built = [json.loads(line).get("executable") for line in out.splitlines()]
    return [Path(path) for path in built if path]


def static(project: Path, packages: list[str], say: Callable[[str], None]) -> dict[str, Path]:
    """The programs of these packages by name, for guests that have no libraries: those in MLX5_LAB_STATIC, or built."""
    named = os.environ.get("MLX5_LAB_STATIC")
    if named:
        found = [path for path in Path(named).iterdir() if path.is_file() and os.access(path, os.X_OK)]
    else:
        say(f"building static programs of {', '.join(packages)}")
        which = [word for package in packages for word in ("-p", package)]
        instead = ", or set MLX5_LAB_STATIC to a folder of static programs"
        found = build(project, ["--target", TARGET, "--bins", *which], instead, {"RUSTFLAGS": STATIC})
    return {path.name: path for path in found}
