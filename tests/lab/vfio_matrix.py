"""Scenes of job `vfio`: what a user does, with each kernel and IOMMU, over both sizes of pages; nothing is left."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import guest
import judge
import vfio_guest
from kernels import Kernel
from lab import Lab, Row
from vfio_guest import INTEL, KERNEL_TROUBLE, PATIENCE, SELFTEST, VIRTIO, Expect, Iommu

FORMATS = ["hash", "csum", "csum-stridx", "ftag-stridx", "l34h-stridx"]
LAYOUTS = ["basic", "enhanced"]
FORMS = [f"{format}={layout}" for format in FORMATS for layout in LAYOUTS]
# Every form with one combination; with the others some.
SOME = ["csum=basic", "hash=enhanced"]
# These are not compressed; the latter have the message's data in them.
PLAIN, INSIDE = "plain", "data-inside"
BDF = r"0000:01:00\.0"
ADDRESSES = ["^ +(gid|mac|node_guid) ", "[0-9a-f]{2}(:[0-9a-f]{2}){5}"]
# Of the 64 pages of the guest.
HUGE_USED = r"^huge pages free: (\d|[1-5]\d|6[0-3]) at least, 64 at most$"
# Any warning about the function but that it is reset.
FUNCTION_TROUBLE = rf"^<[0-4]>.* {BDF}: (?!resetting$|reset done$)"
# Memory that is in huge pages is not all of it; with none of it in these the mean is 4096.
HUGE_MEAN = 1 << 16


def expected(forms: list[str], iommu: Iommu) -> dict[str, Expect]:
    """What each step must say."""
    passed = ["^  result +passed"]
    # QEMU's virtio-iommu maps memory and no interrupts.
    apart = Expect(1, ["^error: the IOMMU does not keep the interrupts of .* allow_unsafe_interrupts"])
    return ({"interrupts that are not kept apart": apart} if iommu is VIRTIO else {}) | {
        "VFIO loads": Expect(),
        "list, not bound": Expect(says=[rf"{BDF}.* 15b3:1018 ", rf"^  {BDF}  .*`mlx5 bind {BDF}`"]),
        "bind": Expect(says=[rf"^{BDF}: from no driver to vfio-pci, IOMMU group \d+, /dev/vfio/\d+$"]),
        "list, bound": Expect(says=[rf"{BDF} .* vfio-pci .* yes$"], not_says=["Missing"]),
        # That these differ here is what makes "as before" worth something.
        "whose it is, bound": Expect(1, [r"^-none$", r"^\+vfio-pci$", r"^\+/run/mlx5/"], not_says=["as before"]),
        "info": Expect(says=["firmware +16.35", "psid"], not_says=ADDRESSES),
        "selftest, 4 KiB pages": Expect(says=[SELFTEST, "psid"], not_says=ADDRESSES),
        "pingpong, 4 KiB pages": Expect(says=passed),
        "pingpong by events": Expect(says=[*passed, r" [1-9]\d* interrupts, [1-9]\d* sleeps?;"]),
        **{f"pingpong, {form}": Expect(says=["^sizes passed: 3$"]) for form in [PLAIN, INSIDE, *forms]},
        "nothing left, 4 KiB pages": Expect(says=["^nothing left$"]),
        "selftest, huge pages": Expect(says=[SELFTEST, HUGE_USED]),
        "pingpong, huge pages": Expect(says=[*passed, HUGE_USED]),
        # SIGTERM. That these differ here is what makes "nothing left" worth something.
        "in the middle, ended by a signal": Expect(
            143, ["^interrupts [1-9]", "^open [1-9]", f"bus master of {BDF}: 1", r"HugePages_Free: +([1-5]?\d|6[0-3])$"]
        ),
        "nothing left, huge pages": Expect(says=["^nothing left$"]),
        "unbind": Expect(says=[rf"^{BDF}: from VFIO to no driver"]),
        "list, given back": Expect(says=["`mlx5 bind"]),
        "whose it is, given back": Expect(says=["^as before$"]),
        "kernel log": Expect(says=["VFIO"], not_says=[FUNCTION_TROUBLE, *KERNEL_TROUBLE]),
    }


def scenes(lab: Lab, programs: dict[str, Path]) -> dict[str, Callable[[], list[Row]]]:
    """A scene for each kernel and IOMMU."""
    combinations = [(kernel, iommu) for kernel in lab.kernels for iommu in (INTEL, VIRTIO)]
    return {
        f"{kernel.name} {iommu.name}": partial(scene, lab, programs, kernel, iommu, FORMS if number == 0 else SOME)
        for number, (kernel, iommu) in enumerate(combinations)
    }


def scene(lab: Lab, programs: dict[str, Path], kernel: Kernel, iommu: Iommu, forms: list[str]) -> list[Row]:
    """One boot, and what the function says of it."""
    name, log = f"{kernel.name} {iommu.name}", f"vfio-{kernel.name}-{iommu.name}"
    with lab.serve(log) as served:
        devices = guest.function_devices(served.socket)
        settings = {"FORMS": " ".join(forms)}
        with vfio_guest.boot(
            lab, log, kernel, "vfio_matrix.sh", devices, programs, iommu, settings=settings
        ) as running:
            counts = {}
            for form in [PLAIN, INSIDE, *forms]:
                running.wait_mark(f"count {form}$", PATIENCE)
                counts[form] = judge.completions(served.report())
                running.say("done")
            running.wait_mark("look at the model", PATIENCE)
            unbound = served.report()
            running.say("done")
            result = running.finish()
        ended = served.finish()
    rows = vfio_guest.step_rows("vfio", name, result, expected(forms, iommu))
    faults = judge.held_faults(unbound) + judge.report_faults(ended) + page_faults(unbound, iommu)
    faults += form_faults(counts)
    return [*rows, Row("vfio", f"{name}: the model's report", faults, 0)]


def page_faults(report: str, iommu: Iommu) -> list[str]:
    """Both kinds of pages must have been mapped, by the function's own account. Intel's IOMMU joins no pages."""
    sizes = {int(size) // int(maps) for maps, size in re.findall(r"maps ([1-9]\d*) \((\d+) bytes\)", report)}
    if iommu is INTEL and not (4096 in sizes and max(sizes) > HUGE_MEAN):
        return [f"the mean sizes of the maps at the releases were {sorted(sizes)}: there were not both kinds of pages"]
    return []


def form_faults(counts: dict[str, judge.Completions]) -> list[str]:
    """Forms in which no completion came, by the function's account after each of them, in order."""
    faults = []
    before = counts[PLAIN]
    for form, now in list(counts.items())[1:]:
        came = now.inlined - before.inlined if form == INSIDE else now.compressed - before.compressed
        if came <= 0:
            faults.append(f"{form}: of {now.written - before.written} completions none came so")
        before = now
    return faults
