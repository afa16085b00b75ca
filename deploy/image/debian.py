"""Questions to dpkg: the package of a file, and the package's description of itself."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence

COPYRIGHTS = pathlib.Path("/usr/share/doc")
# Translations of dpkg would change the bytes.
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    """An installed package of Debian."""

    name: str
    version: str
    architecture: str
    source: str  # name of the source package
    source_version: str

    @property
    def url(self) -> str:
        """Returns the package URL, by which scanners know it."""
        release = platform.freedesktop_os_release()
        return (
            f"pkg:deb/debian/{self.name}@{self.version}?arch={self.architecture}"
            f"&distro=debian-{release['VERSION_ID']}"
        )

    def copyright(self) -> bytes:
        """Returns the text of the package's copyright file."""
        return (COPYRIGHTS / self.name / "copyright").resolve(strict=True).read_bytes()

    def control(self) -> bytes:
        """Returns the package's paragraph in dpkg's database."""
        return _output("dpkg-query", "--status", f"{self.name}:{self.architecture}").encode()


def _output(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if result.returncode != 0:
        raise LookupError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


@functools.cache
def package(name: str) -> Package:
    """Returns an installed package; raises LookupError if it is not installed."""
    fields = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
    lines = _output("dpkg-query", "--show", f"--showformat={fields}", name).splitlines()
    return Package(*lines[0].split("\t"))


def owners(files: Sequence[pathlib.Path]) -> list[Package]:
    """Returns the packages that installed ``files``; raises LookupError if there is none."""
    # dpkg knows a file by the name in its package, and /lib has become a link to /usr/lib.
    real = [str(file.resolve(strict=True)).removeprefix("/usr") for file in files]
    search = ["dpkg-query", "--search", *real, *("/usr" + name for name in real)]
    # The exit code is 1 because each file has one of its two names.
    answer = subprocess.run(search, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    packages = {}
    for line in answer.stdout.splitlines():  # "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6"
        names, _, path = line.rpartition(": ")
        packages[path.removeprefix("/usr")] = names.partition(",")[0]
    for file, name in zip(files, real, strict=True):
        if name not in packages:
            raise LookupError(f"{file} is from no Debian package: its licence is unknown")
    return [package(packages[name]) for name in real]
