"""Resolves and downloads Debian packages with apt, into folders of our own: nothing is installed, no root is needed.

apt works on an empty package database and on one source, which is found among the machine's own sources. Everything
else of the machine's apt configuration (proxies, logins, keys, extra transports) stays in effect, so that a mirror that
works for the machine works here. apt checks the signature of what it downloads.
"""

import os
import re
import shutil
import urllib.parse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import processes
from errors import LabError

RELEASE = "trixie"
BACKPORTS = "trixie-backports"
DEBIAN_SUITES = {"stable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky", "duke"}
DEBIAN_KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Source:
    """Where packages come from."""

    uri: str
    """The address of a Debian mirror."""
    signed_by: str
    """The value of apt's field Signed-By; '' for the keys that apt trusts anyway."""

    def stanza(self) -> str:
        """The source in apt's deb822 form."""
        keys = f"Signed-By: {self.signed_by}\n" if self.signed_by else ""
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {RELEASE} {BACKPORTS}\nComponents: main\n"
            f"Architectures: amd64\nTargets: Packages\n{keys}"
        )


def find_source(etc: Path = Path("/etc/apt")) -> Source:
    """MLX5_LAB_MIRROR, or the first Debian mirror among the machine's apt sources."""
    default_keys = next((k for k in DEBIAN_KEYRINGS if Path(k).exists()), "")
    mirror = os.environ.get("MLX5_LAB_MIRROR")
    if mirror:
        return Source(mirror, default_keys)
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file() or file.suffix not in (".list", ".sources"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        entries = deb822_entries(text) if file.suffix == ".sources" else list_entries(text)
        for uri, suites, signed_by in entries:
            if is_debian(suites):
                return Source(uri, signed_by or default_keys)
    raise LabError(
        f"no Debian mirror among the apt sources in {etc}: set MLX5_LAB_MIRROR to the address of one, "
        'or MLX5_LAB_QEMU and MLX5_LAB_KERNEL to ready files (docs/testing.md, "The lab")'
    )


def is_debian(suites: list[str]) -> bool:
    """Whether a source with these suites also holds RELEASE (security archives do not)."""
    return any(
        s in DEBIAN_SUITES or s.removesuffix("-backports").removesuffix("-updates") in DEBIAN_SUITES for s in suites
    )


def list_entries(text: str) -> list[tuple[str, list[str], str]]:
    """(address, suites, Signed-By) of each line `deb [options] address suite component...`."""
    entries = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s+(.*)", line)
        if match and "main" in match[4].split("#")[0].split():
            options = dict(o.split("=", 1) for o in (match[1] or "").split() if "=" in o)
            entries.append((match[2], [match[3]], options.get("signed-by", "").replace(",", " ")))
    return entries


def deb822_entries(text: str) -> list[tuple[str, list[str], str]]:
    """(address, suites, Signed-By) of each stanza that is enabled and has the component main."""
    entries = []
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = {m[1].lower(): m[2].strip() for m in re.finditer(r"^([\w-]+):(.*(?:\n[ \t].*)*)", stanza, re.M)}
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0")
        if enabled and "deb" in fields.get("types", "").split() and "main" in fields.get("components", "").split():
            suites = fields.get("suites", "").split()
            signed_by = re.sub(r"\n[ \t]*", "\n ", fields.get("signed-by", ""))
            entries += [(uri, suites, signed_by) for uri in fields.get("uris", "").split()]
    return entries


def need_tools() -> None:
    """Says what to do on a machine without apt."""
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise LabError(
                f"{tool} is missing: on a machine without apt, set MLX5_LAB_QEMU, MLX5_LAB_KERNEL and "
                'MLX5_LAB_MODULES to ready files (docs/testing.md, "The lab")'
            )


class Apt:
    """apt-get on an own state folder, which the caller removes."""

    def __init__(self, state: Path, source: Source):
        """Downloads the package lists."""
        self.state = state
        self.source = source
        (state / "lists" / "partial").mkdir(parents=True)
        (state / "status").touch()
        (state / "lab.sources").write_text(source.stanza(), encoding="utf-8")
        self._run("update")

    def _options(self, archives: Path) -> list[str]:
        values = {
            "Dir::Etc::sourcelist": self.state / "lab.sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": self.state / "lists",
            "Dir::State::status": self.state / "status",
            "Dir::State::extended_states": self.state / "extended_states",
            "Dir::Cache": self.state,
            "Dir::Cache::archives": archives,
            # Runs go side by side: no shared index files, no locks.
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Debug::NoLocking": "1",
            # Only what is signed, and no list is better than an old or half a one.
            "Acquire::AllowInsecureRepositories": "0",
            "Acquire::AllowWeakRepositories": "0",
            "APT::Get::AllowUnauthenticated": "0",
            "APT::Update::Error-Mode": "any",
            "Acquire::Retries": "3",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Install-Recommends": "0",
            # The user _apt need not be able to enter our folders.
            "APT::Sandbox::User": "",
        }
        return [word for key, value in values.items() for word in ("-o", f"{key}={value}")]

    def _run(self, *words: str, archives: Path | None = None, cwd: Path | None = None) -> str:
        command = ["apt-get", "-q", *self._options(archives or self.state / "archives"), *words]
        code, out, err = processes.run(command, cwd=cwd, env=os.environ | {"LC_ALL": "C"})
        output = out.decode(errors="replace")
        if code != 0:
            tail = "\n  ".join((output + err).strip().splitlines()[-8:])
            keys = "" if self.source.signed_by else "; Debian's keys come with the package debian-archive-keyring"
            raise LabError(
                f"`apt-get {' '.join(words)}` failed. The packages come from {self.source.uri}; MLX5_LAB_MIRROR names "
                f"another mirror{keys}. apt said:\n  {tail}"
            )
        return output

    def closure(self, suite: str, package: str) -> list[tuple[str, str]]:
        """(name, version) of what `package` of `suite` needs, itself included."""
        listing = self._run("install", "-y", "--print-uris", "-t", suite, package)
        files = re.findall(r"^'[^']*' (\S+\.deb) ", listing, re.M)
        parts = [[urllib.parse.unquote(part) for part in file.split("_")] for file in files]
        return [(name, version) for name, version, *_ in parts]

    def fetch_with_dependencies(self, suite: str, packages: list[str], root: Path) -> None:
        """Unpacks packages and all that they need into the folder `root`."""
        archives = root.with_name(root.name + ".debs")
        (archives / "partial").mkdir(parents=True)
        self._run("install", "-y", "--download-only", "-t", suite, *packages, archives=archives)
        unpack(archives, root)

    def fetch(self, packages: list[tuple[str, str]], root: Path) -> None:
        """Unpacks exactly these packages into the folder `root`."""
        archives = root.with_name(root.name + ".debs")
        archives.mkdir(parents=True)
        self._run("download", *(f"{name}={version}" for name, version in packages), cwd=archives)
        unpack(archives, root)


def unpack(archives: Path, root: Path) -> None:
    """Unpacks every package in `archives` into `root`, then removes the packages."""
    root.mkdir(parents=True)

    def extract(deb: Path) -> None:
        code, _, err = processes.run(["dpkg-deb", "-x", str(deb), str(root)])
        if code != 0:
            said = " ".join(err.strip().splitlines()[:2])
            raise LabError(f"{deb.name} could not be unpacked into {root}: {said}")

    debs = sorted(archives.glob("*.deb"))
    if not debs:
        raise LabError(f"apt downloaded no package into {archives}")
    processes.together([partial(extract, deb) for deb in debs])
    shutil.rmtree(archives)
