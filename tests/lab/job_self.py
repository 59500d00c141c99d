"""Job `self`: the lab's own unit tests, above all that each kind of fault in a log is seen."""

import io
import time
import unittest

from lab import HERE, Lab, Row


def run(_: Lab) -> list[Row]:
    """One row a module of tests."""
    return [tests(path.stem) for path in sorted(HERE.glob("test_*.py"))]


def tests(module: str) -> Row:
    """Runs a module's tests."""
    start = time.monotonic()
    output = io.StringIO()
    result = unittest.TextTestRunner(output).run(unittest.defaultTestLoader.loadTestsFromName(module))
    sound = result.wasSuccessful() and result.testsRun > 0
    return Row(
        "self", f"{module}: {result.testsRun} tests", [] if sound else [output.getvalue()], time.monotonic() - start
    )
