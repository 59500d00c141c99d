"""The judges of job `bare` must see each kind of fault: a sound boot passes, and each doctored one does not."""

import unittest
from pathlib import Path

import job_bare
from guest import GuestRun

WANTED = job_bare.passing()
SOUND = (
    "qemu-system-x86_64: warning: something about a device\n"
    "mlx5 0.1.0 on a bare machine\r\n"
    "function 01:00.0, device 1018, BAR 0 at 0xfea00000, 0x100000 bytes\r\n"
    "up: firmware 16.35.4030, 80 pages given\r\n"
    "16 round trips, 65552 bytes compared\r\n"
    "still taken: 0 pages for the device, 0 bytes of the heap\r\n"
    "PASS\r\n"
)
TRACE = (
    "CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0\n"
    "CMD slot=0 INIT_HCA(0x102) opmod=0 uid=0 inlen=16 outlen=16 st=0 key=value\n"
)


class Serial(unittest.TestCase):
    """guest_faults"""

    def judged(self, serial: str, code: int | None = job_bare.PASS) -> list[str]:
        """The end of a boot that said `serial`."""
        return job_bare.guest_faults(GuestRun(serial, code, 0.2, Path("a.log")), WANTED)

    def test_a_sound_boot_passes(self) -> None:
        self.assertEqual(self.judged(SOUND), [])

    def test_each_missing_line_is_seen(self) -> None:
        lines = SOUND.splitlines(keepends=True)
        for index in range(1, len(lines)):
            with self.subTest(line=lines[index]):
                self.assertEqual(len(self.judged("".join(lines[:index] + lines[index + 1 :]))), 1)

    def test_a_line_too_many_is_seen(self) -> None:
        self.assertEqual(len(self.judged(SOUND + "FAIL afterwards\r\n")), 1)
        self.assertEqual(len(self.judged(SOUND + "qemu-system-x86_64: vfio: the device is gone\n")), 1)

    def test_other_numbers_are_seen(self) -> None:
        for old, new in (("1018", "1017"), ("taken: 0", "taken: 1"), ("0 bytes of", "24 bytes of"), ("16 r", "15 r")):
            with self.subTest(old=old):
                self.assertEqual(len(self.judged(SOUND.replace(old, new))), 1)

    def test_an_exit_code_is_seen(self) -> None:
        # 0 is what a triple fault ends with, None a guest that never ended.
        for code in (0, 1, job_bare.DRIVER_ERROR, None):
            with self.subTest(code=code):
                self.assertEqual(len(self.judged(SOUND, code)), 1)

    def test_silence_is_seen(self) -> None:
        self.assertEqual(len(self.judged("", None)), 2)


class Trace(unittest.TestCase):
    """trace_faults"""

    def test_commands_that_succeeded_pass(self) -> None:
        self.assertEqual(job_bare.trace_faults(TRACE, []), [])

    def test_a_command_that_failed_is_seen(self) -> None:
        for status in ("3", "10", "?"):
            failed = TRACE.replace("st=0 key", f"st={status} key")
            with self.subTest(status=status):
                self.assertEqual(len(job_bare.trace_faults(failed, [])), 1)
                self.assertEqual(len(job_bare.trace_faults(failed, ["INIT_HCA 1"])), 1)
                self.assertEqual(job_bare.trace_faults(failed, [f"INIT_HCA {status}"]), [])

    def test_a_line_that_cannot_be_read_is_seen(self) -> None:
        self.assertEqual(len(job_bare.trace_faults(TRACE + "CMD slot=zero\n", [])), 1)

    def test_a_fault_that_did_not_happen_is_seen(self) -> None:
        self.assertEqual(len(job_bare.trace_faults(TRACE, ["INIT_HCA 3"])), 1)

    def test_an_empty_trace_is_seen(self) -> None:
        self.assertEqual(len(job_bare.trace_faults("", [])), 1)


if __name__ == "__main__":
    unittest.main()
