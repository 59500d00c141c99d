"""The judges of job `vfio` must see each kind of fault: a sound guest passes, and each doctored one does not."""

import unittest
from pathlib import Path

import judge
import vfio_guest
import vfio_matrix
from guest import GuestRun
from lab import Row
from vfio_guest import INTEL, Expect

SERIAL = (
    "qemu-system-x86_64: warning: something about a device\n"
    "@@userspace 6.12\r\n"
    "@@step first of two\r\nfunction 0000:01:00.0\r\nnothing left\r\n\r\n@@end 0 3.50 4.75\r\n"
    "@@step second\r\nerror: it is not there\r\n\r\n@@end 1 4.80 4.90\r\n"
    "@@done\r\n"
)
EXPECTED = {
    "first of two": Expect(says=[r"^function [0-9a-f:.]+$", "nothing left"], not_says=["violation"]),
    "second": Expect(1, ["^error: .*not there"]),
}


class Steps(unittest.TestCase):
    """step_rows"""

    def judged(self, serial: str, code: int | None = 0) -> list[Row]:
        """The rows of a guest that said this."""
        return vfio_guest.step_rows("vfio", "scene", GuestRun(serial, code, 10.0, Path("a.log")), EXPECTED)

    def failed(self, serial: str, code: int | None = 0) -> list[str]:
        """The rows of it that failed."""
        return [row.combination for row in self.judged(serial, code) if row.faults]

    def test_a_sound_guest_passes_and_its_time_is_shared_out(self) -> None:
        rows = self.judged(SERIAL)
        self.assertEqual([row.faults for row in rows], [[], [], []])
        self.assertEqual([round(row.seconds, 2) for row in rows], [8.65, 1.25, 0.1])

    def test_a_wrong_exit_code_is_seen(self) -> None:
        self.assertEqual(self.failed(SERIAL.replace("@@end 0", "@@end 1")), ["scene: first of two"])
        self.assertEqual(self.failed(SERIAL.replace("@@end 1", "@@end 0")), ["scene: second"])

    def test_a_missing_message_is_seen(self) -> None:
        for words in ("function 0000:01:00.0", "nothing left"):
            with self.subTest(words=words):
                self.assertEqual(self.failed(SERIAL.replace(words, "")), ["scene: first of two"])

    def test_a_word_that_must_not_be_there_is_seen(self) -> None:
        doctored = SERIAL.replace("nothing left", "nothing left, 1 violation")
        self.assertEqual(self.failed(doctored), ["scene: first of two"])

    def test_a_step_that_never_ran_is_seen(self) -> None:
        begin = SERIAL.index("@@step second")
        self.assertEqual(self.failed(SERIAL[:begin] + "@@done\r\n"), ["scene: second"])

    def test_a_step_that_never_ended_is_seen(self) -> None:
        begin = SERIAL.index("@@end 1")
        self.assertEqual(self.failed(SERIAL[:begin], None), ["scene: boot and end", "scene: second"])

    def test_a_step_that_nobody_judges_is_seen(self) -> None:
        more = "@@step third\r\n\r\n@@end 0 5.00 6.00\r\n@@done\r\n"
        self.assertEqual(self.failed(SERIAL.replace("@@done\r\n", more)), ["scene: boot and end"])

    def test_a_step_that_ran_twice_is_seen(self) -> None:
        begin, end = SERIAL.index("@@step second"), SERIAL.index("@@done")
        self.assertEqual(self.failed(SERIAL[:end] + SERIAL[begin:]), ["scene: boot and end"])

    def test_modules_that_do_not_load_are_seen(self) -> None:
        more = "@@failed insmod vfio\r\n@@done\r\n"
        self.assertEqual(self.failed(SERIAL.replace("@@done\r\n", more)), ["scene: boot and end"])

    def test_a_guest_that_does_not_end_is_seen(self) -> None:
        for serial, code in ((SERIAL, None), (SERIAL, 1), (SERIAL.replace("@@done\r\n", ""), 0)):
            self.assertEqual(self.failed(serial, code), ["scene: boot and end"])


class Pages(unittest.TestCase):
    """vfio_matrix.page_faults"""

    SMALL = "release: function reset after 70 commands, 0 pending: pages 0, maps 512 (2097152 bytes), vectors 8\n"
    HUGE = "release: function reset after 140 commands, 0 pending: pages 0, maps 2 (4194304 bytes), vectors 8\n"
    NONE = "release: function reset after 0 commands, 0 pending: pages 0, maps 0 (0 bytes), vectors 0\n"

    def test_both_kinds_of_pages_pass(self) -> None:
        self.assertEqual(vfio_matrix.page_faults(self.NONE + self.SMALL + self.HUGE, INTEL), [])

    def test_a_kind_of_pages_that_was_not_used_is_seen(self) -> None:
        for report in ("", self.NONE, self.NONE + self.SMALL, self.HUGE):
            with self.subTest(report=report):
                self.assertEqual(len(vfio_matrix.page_faults(report, INTEL)), 1)


class Forms(unittest.TestCase):
    """judge.completions, vfio_matrix.form_faults"""

    REPORTS = {
        "plain": "commands    9\ncompletions 192 (40 compressed, 7 with data in them)\nviolations  0\n",
        "data-inside": "completions 384 (40 compressed, 103 with data in them)\n",
        "csum=basic": "completions 576 (230 compressed, 103 with data in them)\n",
        "hash=enhanced": "completions 768 (400 compressed, 103 with data in them)\n",
    }

    def faults(self, reports: dict[str, str]) -> list[str]:
        """What is wrong with these reports, by the form before each."""
        return vfio_matrix.form_faults({form: judge.completions(report) for form, report in reports.items()})

    def test_completions_in_every_form_pass(self) -> None:
        self.assertEqual(self.faults(self.REPORTS), [])

    def test_a_form_in_which_no_completion_came_is_seen(self) -> None:
        lost = {"data-inside": "103 with", "csum=basic": "230 compressed", "hash=enhanced": "400 compressed"}
        before = {"data-inside": "7 with", "csum=basic": "40 compressed", "hash=enhanced": "230 compressed"}
        for form, number in lost.items():
            with self.subTest(form=form):
                doctored = {name: text.replace(number, before[form]) for name, text in self.REPORTS.items()}
                self.assertIn(f"{form}: of 192 completions none came so", self.faults(doctored))

    def test_a_report_that_does_not_tell_is_seen(self) -> None:
        self.assertEqual(len(self.faults(dict.fromkeys(self.REPORTS, "violations  0\n"))), 3)


if __name__ == "__main__":
    unittest.main()
