"""What the scenes of job `vfio` share: guests with an IOMMU, VFIO and the project's programs; their steps, judged."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import guest
from guest import GuestRun
from kernels import Kernel
from lab import HERE, Lab, Row

# What is always bad in a kernel's log, and faults of the IOMMU: Intel's and virtio's.
KERNEL_TROUBLE = ["BUG:|WARNING:|Oops|Call Trace", "DMAR:.*[Ff]ault", "fault from EP"]
# Selftest on a function that lacks nothing.
SELFTEST = r"^Result: passed \([1-9]\d+ pass, 0 fail, 0 not offered, 0 not run\)"
STEP = re.compile(r"^@@step (.*?)\n(.*?)^@@end (\d+) ([\d.]+) ([\d.]+)$", re.S | re.M)


@dataclass(frozen=True)
class Iommu:
    """An IOMMU that QEMU emulates."""

    name: str
    args: list[str]
    append: str
    modules: list[str]


INTEL = Iommu("intel", ["-device", "intel-iommu,intremap=on,caching-mode=on"], "intel_iommu=on", [])
VIRTIO = Iommu("virtio", ["-device", "virtio-iommu-pci"], "", ["virtio_pci", "virtio_iommu"])
NONE = Iommu("none", [], "", [])
VFIO = ["vfio_iommu_type1", "vfio_pci"]
# Seconds in which a guest has run its script, also where others keep the processors busy. Alone it takes a fifth.
PATIENCE = 400


@dataclass(frozen=True)
class Step:
    """A command that a guest's script ran (`step` of vfio.sh)."""

    name: str
    code: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Expect:
    """What a step must end with and say. The words are regular expressions, looked for anywhere in its output."""

    code: int = 0
    says: list[str] = field(default_factory=list)
    not_says: list[str] = field(default_factory=list)


# The step with the kernel's log, the last one of a script.
KERNEL_LOG = Expect(says=["VFIO"], not_says=KERNEL_TROUBLE)


@contextmanager
def boot(
    lab: Lab,
    name: str,
    kernel: Kernel,
    script: str,
    devices: list[str],
    programs: dict[str, Path],
    iommu: Iommu = INTEL,
    modules: list[str] = VFIO,
    append: str = "",
    settings: dict[str, str] | None = None,
) -> Iterator[guest.Running]:
    """A guest that runs vfio.sh and then `script`, a file of this folder.

    `devices` are arguments of QEMU (`guest.function_devices`, `guest.one_group`, `["-device", "edu"]`); `programs`
    lie in /bin. The script finds the variables of `settings`, and IOMMU (intel, virtio, none); `load_vfio` loads
    `modules` up to vfio_pci, `load_modules` all of them.
    """
    variables = {"IOMMU": iommu.name, **(settings or {})}
    texts = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    texts += [(HERE / file).read_text(encoding="utf-8") for file in ("vfio.sh", script)]
    files = {f"bin/{program}": path for program, path in programs.items()}
    initrd = lab.initrd(kernel, "\n".join(texts), [*iommu.modules, *modules], files)
    system = guest.linux(kernel.image(), initrd, f"{iommu.append} {append}".strip())
    with lab.boot(name, [*iommu.args, *system, *devices]) as running:
        yield running


def steps(serial: str) -> list[Step]:
    """The steps of a guest, in order."""
    text = serial.replace("\r", "")
    return [Step(m[1], int(m[3]), m[2].strip(), float(m[5]) - float(m[4])) for m in STEP.finditer(text)]


def step_faults(step: Step, expected: Expect) -> list[str]:
    """What a step did otherwise."""
    faults = [] if step.code == expected.code else [f"exit code {step.code}, not {expected.code}"]
    faults += [f"it did not say /{words}/" for words in expected.says if not re.search(words, step.output, re.M)]
    faults += [f"it said /{words}/" for words in expected.not_says if re.search(words, step.output, re.M)]
    return [*faults, *(f"| {line}" for line in step.output.splitlines())] if faults else []


def run_faults(result: GuestRun) -> list[str]:
    """What was wrong with a guest's run as a whole."""
    marks = result.marks()
    faults = [f"the guest: {mark}" for mark in marks if mark.startswith("failed")]
    if result.exit_code != 0:
        faults.append("the guest did not power off in time" if result.exit_code is None else "QEMU failed")
    if not marks or marks[-1] != "done":
        faults.append(f"the guest's script did not come to its end: {marks[-1:]}")
    return [*faults, f"see {result.log}"] if faults else []


def step_rows(job: str, scene: str, result: GuestRun, expected: dict[str, Expect]) -> list[Row]:
    """A row for each step that is expected, and one for the boot, whose time is what the steps did not take."""
    every = steps(result.serial)
    found = {step.name: step for step in every}
    rows = []
    for name, wanted in expected.items():
        step = found.get(name)
        faults = step_faults(step, wanted) if step else ["the guest never came to it"]
        faults = [*faults, f"see {result.log}"] if faults else []
        rows.append(Row(job, f"{scene}: {name}", faults, step.seconds if step else 0))
    faults = run_faults(result)
    faults += [f"nobody expected step {name}" for name in found if name not in expected]
    faults += [f"step {name} ran {times} times" for name, times in Counter(s.name for s in every).items() if times > 1]
    rest = result.seconds - sum(step.seconds for step in found.values())
    return [Row(job, f"{scene}: boot and end", faults, rest), *rows]
