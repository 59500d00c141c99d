"""The judges of what mlx5-lab-probe says of interrupts, idle waits, blocked calls: sound words pass, others do not."""

import re
import unittest

import vfio_faults
from model import ModelRun
from vfio_guest import Expect, Step, step_faults

CLEAN = "violations  0\nobjects     none\npages       0\nmaps        0\nvectors     0\n"
UNMAPPED = (
    f"{CLEAN.replace('violations  0', 'violations  2')}"
    "violation: DmaUnmapped at 1 ns: a\nviolation: DmaUnmapped at 2 ns: b\n"
)
GONE = "@@probe gone call=cq-wait us=234403 error=Gone errno=19 text=the device does not answer"
IDLE = "@@probe idle device=0000:01:00.0 ms=3046 ticks=11 switches=97 completion=34 event=31 asynchronous=32"
MEMORY = "@@probe memory device=a bytes=100001 locked_before=2048 locked=2248 locked_after=2048"


class Judges(unittest.TestCase):
    """Words of the probe, and reports of functions"""

    def passes(self, expected: Expect, output: str) -> bool:
        """Whether a step that said this is sound."""
        return not step_faults(Step("a", 0, output, 0.0), expected)

    def test_a_call_must_end_soon_and_by_type(self) -> None:
        expected = Expect(says=vfio_faults.ends("gone", "cq-wait", vfio_faults.GONE))
        self.assertTrue(self.passes(expected, GONE))
        wrong = (("us=234403", "us=60234403"), ("error=Gone errno=19", "error=Timeout errno=110"), ("cq-wait", "all"))
        for old, new in wrong:
            self.assertFalse(self.passes(expected, GONE.replace(old, new)), new)

    def test_a_program_that_fails_or_does_not_come_to_its_end_is_seen(self) -> None:
        expected = vfio_faults.gone_expected("close")
        said = f"{GONE.replace('cq-wait', 'close')}\n@@probe gone done call=close"
        self.assertTrue(self.passes(expected, said))
        self.assertFalse(self.passes(expected, said.replace("@@probe gone done", "")))
        self.assertFalse(self.passes(expected, f"{said}\n@@probe failed the device does not answer"))
        expected = vfio_faults.reset_expected("cq-wait")
        said = f"{GONE.replace('gone', 'reset')}\n@@probe reset call=cq-wait messages=20 interrupts=6"
        self.assertTrue(self.passes(expected, said))
        self.assertFalse(self.passes(expected, said.replace("interrupts=6", "interrupts=0")))
        self.assertFalse(self.passes(expected, f"{said}\n@@probe failed Device or resource busy"))

    def test_every_part_of_all_calls_must_have_ended(self) -> None:
        said = [GONE.replace("cq-wait", f"all:{part}") for part in vfio_faults.ALL]
        expected = Expect(says=vfio_faults.ends("gone", "all", vfio_faults.GONE))
        self.assertTrue(self.passes(expected, "\n".join(said)))
        for missing in range(len(said)):
            self.assertFalse(self.passes(expected, "\n".join(said[:missing] + said[missing + 1 :])))

    def test_a_wait_that_burns_the_processor_is_seen(self) -> None:
        expected = vfio_faults.MEASURED["an idle wait"]
        self.assertTrue(self.passes(expected, IDLE))
        for old, new in (("ticks=11", "ticks=60"), ("=97", "=3000"), ("event=31", "event=0"), ("ms=3046", "ms=304")):
            self.assertFalse(self.passes(expected, IDLE.replace(old, new)), new)

    def test_memory_that_stays_locked_or_never_was_is_seen(self) -> None:
        expected = vfio_faults.MEASURED["memory of the program"]
        self.assertTrue(self.passes(expected, MEMORY))
        self.assertFalse(self.passes(expected, MEMORY.replace("after=2048", "after=2248")))
        self.assertFalse(self.passes(expected, MEMORY.replace("locked=2248", "locked=2048")))

    def test_a_vector_without_interrupts_is_seen(self) -> None:
        lines = [f"@@probe vectors device=a vector={n} events=20 interrupts=20" for n in range(4)]
        expected = vfio_faults.MEASURED["events on every vector"]
        self.assertTrue(self.passes(expected, "\n".join(lines)))
        for n in range(4):
            doctored = [re.sub(rf"(vector={n} .*=)20$", r"\g<1>0", line) for line in lines]
            self.assertFalse(self.passes(expected, "\n".join(doctored)))

    def test_the_accesses_to_nothing_must_be_reported_and_no_others(self) -> None:
        self.assertEqual(self.account(UNMAPPED, unmapped=True), [])
        more, fewer = f"{UNMAPPED}violation: BadPage at 3 ns: c\n", UNMAPPED.rsplit("violation:", 1)[0]
        for report in (CLEAN, more, fewer, UNMAPPED.replace("none", "1 QP"), UNMAPPED.replace("pages       0", "")):
            self.assertNotEqual(self.account(report, unmapped=True), [])
        self.assertEqual(self.account(CLEAN, unmapped=False), [])
        self.assertNotEqual(self.account(UNMAPPED, unmapped=False), [])

    def test_what_a_killed_program_left_is_seen_before_the_guest_ends(self) -> None:
        for unmapped, ended in ((True, UNMAPPED), (False, CLEAN)):
            for old, new in (("maps        0", "maps        1"), ("vectors     0", "vectors     4")):
                faults = self.account(ended, unmapped, held=ended.replace(old, new))
                self.assertEqual(len(faults), 1, faults)

    def account(self, ended: str, unmapped: bool, held: str | None = None) -> list[str]:
        """What is wrong with a function that reported this, and the same or `held` before."""
        return vfio_faults.model_faults(held or ended, ModelRun(int(unmapped), ended, ""), unmapped)


if __name__ == "__main__":
    unittest.main()
