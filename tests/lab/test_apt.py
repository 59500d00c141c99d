"""The mirror is found in both forms of apt's sources."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import apt
from errors import LabError

LIST = """\
# deb http://old.invalid/debian bookworm main
deb http://security.invalid/debian-security bookworm-security main
deb-src http://source.invalid/debian bookworm main
deb [arch=amd64 signed-by=/keys/a.gpg,/keys/b.gpg] https://mirror.invalid/debian bookworm contrib main # near
"""
DEB822 = """\
# A comment
Types: deb
URIs: https://security.invalid/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: https://off.invalid/debian
Suites: trixie
Components: main

Types: deb deb-src
URIs: https://mirror.invalid/debian
Suites: bookworm-security
# A comment inside
 bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBFYsMIX
 -----END PGP PUBLIC KEY BLOCK-----
"""


class Sources(unittest.TestCase):
    """find_source"""

    def found(self, name: str, text: str, **environment: str) -> apt.Source:
        """What is found with one file of sources in /etc/apt."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            with mock.patch.dict(os.environ, environment):
                if not environment:
                    os.environ.pop("MLX5_LAB_MIRROR", None)
                return apt.find_source(Path(folder))

    def test_the_list_form_is_read_with_its_keys(self) -> None:
        source = self.found("sources.list", LIST)
        self.assertEqual(source, apt.Source("https://mirror.invalid/debian", "/keys/a.gpg /keys/b.gpg"))

    def test_the_deb822_form_is_read_with_its_keys(self) -> None:
        source = self.found("sources.list.d/debian.sources", DEB822)
        self.assertEqual(source.uri, "https://mirror.invalid/debian")
        self.assertIn(" mQINBFYsMIX\n", source.signed_by)
        self.assertNotIn("\n-----", source.stanza().split("Signed-By:")[1])

    def test_a_file_that_apt_ignores_is_ignored(self) -> None:
        with self.assertRaises(LabError):
            self.found("sources.list.d/debian.list.disabled", LIST)

    def test_another_distribution_is_no_mirror(self) -> None:
        with self.assertRaisesRegex(LabError, "MLX5_LAB_MIRROR"):
            self.found("sources.list", "deb http://other.invalid/ubuntu noble main\n")

    def test_a_named_mirror_comes_first(self) -> None:
        source = self.found("sources.list", LIST, MLX5_LAB_MIRROR="https://named.invalid/debian")
        self.assertEqual(source.uri, "https://named.invalid/debian")

    def test_trust_without_signatures_is_not_taken_over(self) -> None:
        source = self.found("sources.list", "deb [trusted=yes] http://mirror.invalid/debian trixie main\n")
        self.assertNotIn("rusted", source.stanza())


if __name__ == "__main__":
    unittest.main()
