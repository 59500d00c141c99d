"""A guest's marks are seen in order, and its end and its silence are told; a shell stands for QEMU."""

import tempfile
import unittest
from pathlib import Path

from errors import LabError
from guest import Running

# The arguments of QEMU that follow are the shell's parameters, which it does not look at.
TALKS = "echo @@one; echo a line; echo @@two; read -r word; echo @@heard $word; echo @@done"


class Talks(unittest.TestCase):
    """Running"""

    def running(self, script: str) -> Running:
        """A guest whose script this is."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Running(["sh", "-c", script, "sh"], [], Path(folder.name) / "log")

    def test_marks_come_in_order_and_an_answer_reaches_the_guest(self) -> None:
        with self.running(TALKS) as guest:
            self.assertEqual(guest.wait_mark("t"), "two")
            guest.say("hello")
            self.assertEqual(guest.wait_mark("heard"), "heard hello")
            result = guest.finish(60)
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(result.marks(), ["one", "two", "heard hello", "done"])

    def test_a_mark_is_seen_once(self) -> None:
        with self.running(TALKS) as guest:
            guest.wait_mark("two")
            guest.say("")
            with self.assertRaisesRegex(LabError, "ended without a mark 'one'"):
                guest.wait_mark("one")

    def test_a_guest_that_goes_on_without_a_mark_is_told(self) -> None:
        with self.running("sleep 1000") as guest:
            with self.assertRaisesRegex(LabError, "went on for 0.1 s without a mark 'one'"):
                guest.wait_mark("one", 0.1)
            self.assertIsNone(guest.finish(0.1).exit_code)

    def test_a_guest_is_ended_once_its_script_is_done(self) -> None:
        with self.running(f"{TALKS}; sleep 1000") as guest:
            guest.say("x")
            self.assertEqual(guest.abandon(60).marks()[-1], "done")


if __name__ == "__main__":
    unittest.main()
