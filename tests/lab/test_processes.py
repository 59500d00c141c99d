"""Nothing that a run started outlives it."""

import importlib.util
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from types import ModuleType

from errors import LabError

SLEEP = ["sleep", "1000"]


class Ends(unittest.TestCase):
    """The module `processes`, in a copy of its own: what ends its run does not end that of the lab."""

    def setUp(self) -> None:
        spec = importlib.util.spec_from_file_location("processes_copy", Path(__file__).parent / "processes.py")
        assert spec and spec.loader
        self.processes: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.processes)
        self.addCleanup(self.processes.end_all)

    def test_the_end_of_a_run_kills_what_lives_and_starts_nothing_more(self) -> None:
        sleeper = self.processes.start(SLEEP, subprocess.DEVNULL)
        self.processes.end_all()
        self.assertEqual(sleeper.returncode, -9)
        with self.assertRaisesRegex(LabError, "being ended"):
            self.processes.start(SLEEP, subprocess.DEVNULL)

    def test_a_call_that_fails_ends_those_beside_it(self) -> None:
        codes: list[int] = []
        with tempfile.TemporaryDirectory() as folder:
            fifo = Path(folder) / "fifo"
            subprocess.run(["mkfifo", str(fifo)], check=True)

            def fail() -> None:
                fifo.read_text(encoding="utf-8")
                raise LabError("first")

            def sleep() -> None:
                codes.append(self.processes.run(["sh", "-c", f"echo up > {fifo}; exec {' '.join(SLEEP)}"])[0])

            with self.assertRaisesRegex(LabError, "first"):
                self.processes.together([fail, sleep])
        self.assertEqual(codes, [-9])

    def test_the_first_failure_is_told_and_not_what_came_of_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = Path(folder) / "fifo"
            subprocess.run(["mkfifo", str(fifo)], check=True)

            def fail() -> None:
                fifo.read_text(encoding="utf-8")
                raise LabError("the disk is full")

            suffered = threading.Event()

            def suffer() -> None:
                code = self.processes.run(["sh", "-c", f"echo up > {fifo}; exec {' '.join(SLEEP)}"])[0]
                suffered.set()
                raise LabError(f"killed with {code}")

            # It fails first, but its failure arrives last: a neighbour of its own takes longer to end.
            def unpack() -> None:
                self.processes.together([fail, lambda: suffered.wait(60)])

            with self.assertRaisesRegex(LabError, "the disk is full"):
                self.processes.together([suffer, unpack])

    def test_children_of_a_process_end_with_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = Path(folder) / "fifo"
            subprocess.run(["mkfifo", str(fifo)], check=True)
            script = f"sleep 1000 > {fifo} & wait"
            parent = self.processes.start(["sh", "-c", script], subprocess.DEVNULL)
            with open(fifo, encoding="utf-8") as end_of_child:
                self.processes.end(parent)
                self.assertEqual(end_of_child.read(), "")

    def test_a_program_that_is_missing_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "no-such-program does not start"):
            self.processes.run(["no-such-program"])

    def test_a_program_that_ends_gives_code_and_output(self) -> None:
        self.assertEqual(self.processes.run(["sh", "-c", "cat; echo bad >&2; exit 3"], b"in"), (3, b"in", "bad\n"))


if __name__ == "__main__":
    unittest.main()
