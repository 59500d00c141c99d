"""The judge must see each kind of fault: sound logs pass, and each doctored one does not."""

import unittest
from pathlib import Path

import judge
from model import ModelRun

RECORDED = judge.recorded_commands(
    (Path(__file__).resolve().parent.parent / "data" / "linux-core-only.log").read_text(encoding="utf-8")
)
SOUND_LOG = [
    "<6>[    2.101000] mlx5_core 0000:01:00.0: enabling device (0000 -> 0002)",
    "<6>[    2.103000] mlx5_core 0000:01:00.0: firmware version: 16.35.4000",
]
REPORT = "commands    24\nviolations  0\nobjects     none\npages       0\n"


def trace(commands: list[judge.Command]) -> list[str]:
    """Commands in the form of the model's trace, as successful ones."""
    return [
        f"1.5 CMD slot={c.slot} {c.name}({c.opcode:#x}) opmod={c.op_mod} uid=0 inlen={c.input_length} "
        f"outlen={c.output_length} st=0 key=value"
        for c in commands
    ]


class Log(unittest.TestCase):
    """dmesg_faults"""

    def judged(self, *more: str, allowed: tuple[judge.Allowed, ...] = ()) -> list[str]:
        """The sound log and more lines, judged."""
        return judge.dmesg_faults([*SOUND_LOG, *more], list(allowed))

    def test_a_sound_log_passes(self) -> None:
        self.assertEqual(self.judged(), [])

    def test_each_kind_of_bad_line_is_seen(self) -> None:
        lines = (
            "<4>[    3.0] WARNING: CPU: 0 PID: 62 at lib/refcount.c:28 refcount_warn_saturate+0xba/0x110",
            "<3>[    3.0] mlx5_core 0000:01:00.0: wait_func:1195:(pid 70): ENABLE_HCA(0x104) timeout. Will leak",
            "<4>[    3.0] mlx5_core 0000:01:00.0: reached miss count",
            "<6>[    3.0] mlx5_core 0000:01:00.0: something failed",
            "<6>[    3.0] Call Trace:",
            "<1>[    3.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "<0>[    3.0] divide error: 0000 [#1] PREEMPT SMP",
            "<12>[    3.0] mlx5_core: a warning with a facility",
            "a line without a level",
        )
        for line in lines:
            with self.subTest(line=line):
                self.assertEqual(self.judged(line), [f"the kernel logged: {line}"])

    def test_an_allowed_line_passes_and_no_other(self) -> None:
        allowed = judge.Allowed("vendor specific ID", "there is no such capability")
        self.assertEqual(self.judged("<4>[ 3.0] Failed to get valid vendor specific ID", allowed=(allowed,)), [])
        self.assertEqual(len(self.judged("<4>[ 3.0] Failed to get anything", allowed=(allowed,))), 1)

    def test_a_log_that_is_missing_or_empty_is_a_fault(self) -> None:
        self.assertTrue(judge.dmesg_faults(None, []))
        self.assertTrue(judge.dmesg_faults([], []))

    def test_the_log_is_what_stands_between_the_marks(self) -> None:
        self.assertEqual(
            judge.dmesg("@@userspace\r\n@@dmesg-begin\r\n<6>a\r\n<6>b\r\n@@dmesg-end\r\n@@done\r\n"), ["<6>a", "<6>b"]
        )
        self.assertIsNone(judge.dmesg("@@userspace\r\n@@dmesg-begin\r\n<6>a\r\n"))


class Trace(unittest.TestCase):
    """trace_faults"""

    def judged(self, lines: list[str]) -> list[str]:
        """A trace against the recorded list."""
        return judge.trace_faults("\n".join(lines), RECORDED)

    def test_the_recorded_commands_pass(self) -> None:
        self.assertEqual(len(RECORDED), 24)
        self.assertEqual(self.judged(trace(RECORDED)), [])

    def test_each_missing_command_is_seen(self) -> None:
        for index in range(len(RECORDED)):
            with self.subTest(index=index):
                self.assertTrue(self.judged(trace(RECORDED[:index] + RECORDED[index + 1 :])))

    def test_a_command_too_many_is_seen(self) -> None:
        again = [*RECORDED[:10], RECORDED[9], *RECORDED[10:]]
        self.assertEqual(self.judged(trace(again)), [f"the commands: +{RECORDED[9]}"])

    def test_another_order_is_seen(self) -> None:
        swapped = [RECORDED[1], RECORDED[0], *RECORDED[2:]]
        self.assertTrue(self.judged(trace(swapped)))

    def test_another_length_or_slot_is_seen(self) -> None:
        for old, new in (("outlen=12", "outlen=16"), ("slot=31", "slot=1"), ("opmod=2", "opmod=1")):
            with self.subTest(old=old):
                self.assertTrue(self.judged([line.replace(old, new) for line in trace(RECORDED)]))

    def test_a_command_that_failed_is_seen(self) -> None:
        lines = trace(RECORDED)
        lines[-1] = lines[-1].replace("st=0", "st=3")
        self.assertEqual(self.judged(lines), [f"a command failed: {lines[-1]}"])

    def test_a_line_that_cannot_be_read_is_seen(self) -> None:
        self.assertEqual(self.judged([*trace(RECORDED), "CMD slot=zero"]), ["no line of a trace: CMD slot=zero"])

    def test_an_empty_trace_is_seen(self) -> None:
        self.assertEqual(len(self.judged([])), 24)

    def test_an_extra_command_has_its_place(self) -> None:
        extra = judge.Extra("QUERY_HCA_CAP", judge.Command(0, "ACCESS_REG", 0x805, 0, 32, 32), "reg=0x7004 w", "why")
        names = [c.name for c in judge.expected_commands(RECORDED, [extra])]
        self.assertEqual(names[4:7], ["MANAGE_PAGES", "ACCESS_REG", "QUERY_HCA_CAP"])
        line = trace([extra.command])[0].replace("key=value", "reg=0x7004 w")
        self.assertEqual(judge.detail_faults(line, [extra]), [])
        self.assertEqual(len(judge.detail_faults(line.replace("7004", "7005"), [extra])), 1)


class Marks(unittest.TestCase):
    """mark_faults"""

    def test_a_driver_that_never_bound_is_seen(self) -> None:
        wanted = ["driver mlx5_core", "driver none", "module gone"]
        self.assertEqual(judge.mark_faults(wanted, wanted), [])
        faults = judge.mark_faults(["driver none", "driver none", "module gone"], wanted)
        self.assertIn("the guest: -driver mlx5_core", faults)

    def test_a_guest_that_stopped_half_way_is_seen(self) -> None:
        self.assertEqual(judge.mark_faults(["a"], ["a", "done"]), ["the guest: -done"])


class Report(unittest.TestCase):
    """report_faults"""

    def judged(self, report: str, code: int | None = 0) -> list[str]:
        """The end of a function with this report and exit code."""
        return judge.report_faults(ModelRun(code, report, ""))

    def test_a_clean_report_passes(self) -> None:
        self.assertEqual(self.judged(REPORT), [])

    def test_each_thing_that_is_left_is_seen(self) -> None:
        for clean, bad in (("violations  0", "violations  1"), ("none", "EQ 2"), ("pages       0", "pages       80")):
            with self.subTest(bad=bad):
                self.assertEqual(len(self.judged(REPORT.replace(clean, bad))), 1)

    def test_a_missing_report_is_seen(self) -> None:
        self.assertEqual(len(self.judged("")), 3)

    def test_an_exit_code_is_seen(self) -> None:
        self.assertEqual(self.judged(REPORT, 1), ["mlx5-model ended with 1"])
        self.assertEqual(self.judged(REPORT, None), ["mlx5-model was still serving after its client had gone"])


class Held(unittest.TestCase):
    """held_faults"""

    REPORT = f"{REPORT}maps        0\nvectors     0\npeak        objects 5, pages 80\n"

    def test_a_function_that_was_given_back_passes(self) -> None:
        self.assertEqual(judge.held_faults(self.REPORT), [])

    def test_each_thing_that_is_left_is_seen(self) -> None:
        left = {
            "violations  0": "violations  1",
            "objects     none": "objects     1 CQ",
            "pages       0": "pages       80",
            "maps        0": "maps        1",
            "vectors     0": "vectors     2",
        }
        for clean, bad in left.items():
            with self.subTest(bad=bad):
                self.assertEqual(len(judge.held_faults(self.REPORT.replace(clean, bad))), 1)

    def test_a_line_that_is_missing_is_seen(self) -> None:
        self.assertEqual(len(judge.held_faults("")), 5)
        self.assertEqual(len(judge.held_faults(self.REPORT.replace("maps ", "mops "))), 1)


if __name__ == "__main__":
    unittest.main()
