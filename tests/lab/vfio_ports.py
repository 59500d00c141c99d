"""Scene of job `vfio`: functions that are not like the ordinary one, all in one guest."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import guest
import judge
import vfio_guest
from lab import Lab, Row
from vfio_guest import KERNEL_LOG, PATIENCE, SELFTEST, Expect

LINKS = r"^  (link_layer|port) +"
# What lacks that is missing below: forms, laps, data inside.
FEWER = r"^Result: passed \([1-9]\d+ pass, 0 fail, 18 not offered, 0 not run\)"
MISSING = ["enhanced_cqe_compression", "sctr_data_cqe"]
# Arguments of mlx5-model serve.
FUNCTIONS = [
    ["--port", "ib"],
    ["--port-down"],
    ["--port", "ib", "--port-down"],
    ["--without", ",".join(MISSING)],
    ["--fault", "corrupt:200"],
    ["--pf"],
    ["--bar-size", "8G", "--vectors", "2"],
]
EXPECTED = {
    "all are bound": Expect(),
    "InfiniBand": Expect(says=[rf"{LINKS}InfiniBand$", rf"{LINKS}up$", SELFTEST]),
    "no link": Expect(says=[rf"{LINKS}down$", SELFTEST]),
    "InfiniBand, no link": Expect(says=[rf"{LINKS}InfiniBand$", rf"{LINKS}down$", SELFTEST]),
    "capabilities that are missing": Expect(
        says=[rf"^  \S+ +not offered .*{cap}" for cap in MISSING] + [FEWER]
    ),
    "a device that corrupts a message": Expect(1, [r"^  cq-\S+ +FAIL ", r"^Result: FAILED .*, 1 fail,", "^error: "]),
    "InfiniBand: pingpong": Expect(says=["^  result +passed"]),
    "a physical function": Expect(says=["ConnectX-5 .15b3:1017", SELFTEST]),
    "BAR 0 beyond 4 GiB, other numbers of vectors": Expect(says=["^  result +passed"]),
    "all are given back": Expect(),
    "kernel log": KERNEL_LOG,
}


def scenes(lab: Lab, programs: dict[str, Path]) -> dict[str, Callable[[], list[Row]]]:
    """One guest."""
    return {"ports": partial(ports, lab, programs)}


def ports(lab: Lab, programs: dict[str, Path]) -> list[Row]:
    """Selftest on each, and what each says of it in the end."""
    kernel = lab.kernels[-1]
    with ExitStack() as stack:
        models = [stack.enter_context(lab.serve(f"vfio-ports-{n}", *args)) for n, args in enumerate(FUNCTIONS)]
        devices = guest.function_devices(*(model.socket for model in models))
        running = stack.enter_context(
            vfio_guest.boot(lab, "vfio-ports", kernel, "vfio_ports.sh", devices, programs)
        )
        rows = vfio_guest.step_rows("vfio", "ports", running.finish(PATIENCE), EXPECTED)
        faults = [f"{args}: {f}" for args, m in zip(FUNCTIONS, models) for f in judge.report_faults(m.finish())]
    return [*rows, Row("vfio", "ports: the models' reports", faults, 0)]
