"""Questions to dpkg: the package of a file, and the package's description of itself, here or in another folder of Debian."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence

HERE = pathlib.Path("/")
# A release's server is compiled and linked there; see deploy/release/make_server.
SERVER_ROOT = pathlib.Path(__file__).resolve().parents[2] / ".tools/server_root"
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
    root: pathlib.Path = HERE  # the folder where it is installed

    @property
    def url(self) -> str:
        """Returns the package URL, by which scanners know it."""
        # Packages of no release yet have no number of one.
        unstable = SERVER_ROOT in (self.root, *self.root.parents)
        number = "sid" if unstable else platform.freedesktop_os_release()["VERSION_ID"]
        return (
            f"pkg:deb/debian/{self.name}@{self.version}?arch={self.architecture}"
            f"&distro=debian-{number}"
        )

    @property
    def supplier(self) -> str:
        """Returns who distributes it, in SPDX's words."""
        return "Organization: Debian"

    @property
    def origin(self) -> str:
        """Returns what it was built from."""
        return f"built from Debian's source {self.source} {self.source_version}"

    def copyright(self) -> bytes:
        """Returns the text of the package's copyright file."""
        file = self.root / "usr/share/doc" / self.name / "copyright"
        return file.resolve(strict=True).read_bytes()

    def control(self) -> bytes:
        """Returns the package's paragraph in dpkg's database."""
        name = f"{self.name}:{self.architecture}"
        return _output(*_query(self.root), "--status", name).encode()


def _query(root: pathlib.Path) -> tuple[str, str]:
    return ("dpkg-query", f"--admindir={root}/var/lib/dpkg")


def _output(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if result.returncode != 0:
        raise LookupError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


@functools.cache
def package(name: str, root: pathlib.Path = HERE) -> Package:
    """Returns a package that is installed in ``root``; raises LookupError if it is not."""
    fields = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
    shown = _output(*_query(root), "--show", f"--showformat={fields}", name)
    name, version, architecture, source, source_version = shown.splitlines()[0].split("\t")
    return Package(name, version, architecture, source, source_version, root)


def linked(program: pathlib.Path) -> list[Package]:
    """Returns the packages that deploy/release/make_server has linked into ``program``; none in those of other builds."""
    listed = program.with_name(f"{program.name}.linked")
    names = listed.read_text().split() if listed.exists() else []
    return [
        package(name.removesuffix(":arm64"), SERVER_ROOT / "arm64")
        if name.endswith(":arm64")
        else package(name, SERVER_ROOT)
        for name in names
    ]


def owners(files: Sequence[pathlib.Path], root: pathlib.Path = HERE) -> list[Package]:
    """Returns the packages that installed ``files`` of ``root``; raises LookupError if there is none."""
    # dpkg knows a file by the name in its package, and /lib has become a link to /usr/lib.
    found = [under(root, file).resolve(strict=True).relative_to(root.resolve()) for file in files]
    real = [f"/{file}".removeprefix("/usr") for file in found]
    search = [*_query(root), "--search", *real, *("/usr" + name for name in real)]
    # The exit code is 1 because each file has one of its two names.
    answer = subprocess.run(search, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    packages = {}
    for line in answer.stdout.splitlines():  # "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6"
        names, _, path = line.rpartition(": ")
        packages[path.removeprefix("/usr")] = names.partition(",")[0]
    for file, name in zip(files, real, strict=True):
        if name not in packages:
            raise LookupError(f"{file} is from no Debian package: its licence is unknown")
    return [package(packages[name], root) for name in real]


def under(root: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Returns where a file of ``root`` is, by its path there."""
    return root / path.relative_to("/")
