"""The files of the image: the server, the libraries that it loads, and what both need to know."""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence

import debian
import sbom
from debian import under
from machine import Machine
from oci import Entry

PROGRAM = "usr/bin/counterweight-server"
USER = 65532  # the customary number of an image's unprivileged user
DOCUMENTS = "usr/share/doc"
COMPILED_IN = ("nlohmann-json3-dev", "libspdlog-dev", "libprotobuf-dev", "libgrpc++-dev")
AUTHORITIES = pathlib.Path("/usr/share/ca-certificates/mozilla")
LICENCES = pathlib.Path("/usr/share/common-licenses")
OS_RELEASE = pathlib.Path("/usr/lib/os-release")

PASSWD = f"""root:x:0:0:root:/:/usr/sbin/nologin
counterweight:x:{USER}:{USER}:counterweight:/:/usr/sbin/nologin
"""
GROUP = f"root:x:0:\ncounterweight:x:{USER}:\n"


def stripped(program: pathlib.Path, machine: Machine) -> bytes:
    """Returns the bytes of ``program`` without its symbols."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([machine.strip, "-o", file.name, str(program)], check=True)
        return pathlib.Path(file.name).read_bytes()


def libraries(program: pathlib.Path, machine: Machine) -> list[pathlib.Path]:
    """Returns the shared libraries that ``program`` loads and its loader, by their paths on ``machine``."""
    command = [*machine.ldd, str(program)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise LookupError(f"ldd {program}: {(answer.stderr or answer.stdout).strip()}")
    found = []
    for line in answer.stdout.splitlines():
        name, arrow, path = line.partition(" => ")
        if "not found" in line:
            raise LookupError(f"{program} needs {name.strip()}, which is not installed")
        if arrow or name.strip().startswith("/"):  # the loader has no arrow, the kernel's no path
            file = pathlib.Path((path or name).split()[0])
            # Another machine's loader has the path by which it was started.
            inside = file.is_relative_to(machine.root)
            found.append("/" / file.relative_to(machine.root) if inside else file)
    return found


class Rootfs:
    """The two layers: Debian's files, which change with Debian, and ours."""

    def __init__(
        self,
        program: pathlib.Path,
        licence: pathlib.Path,
        machine: Machine,
        others: Sequence[sbom.Part] = (),
    ) -> None:
        """Collects the files; raises LookupError where one is missing or from no package.

        ``others`` are what the program contains besides Debian's packages.
        """
        root = machine.root
        self.packages = {debian.package(name, root) for name in ("ca-certificates", "base-files")}
        self.included: list[sbom.Part] = [
            *(debian.linked(program) or [debian.package(name, root) for name in COMPILED_IN]),
            *others,
        ]
        self._program = stripped(program, machine)
        self._licence = licence.read_bytes()
        self.debian = [
            Entry("bin", link="usr/bin"),
            Entry("lib", link="usr/lib"),
            Entry("tmp", 0o1777),
            Entry("etc/passwd", content=PASSWD.encode()),
            Entry("etc/group", content=GROUP.encode()),
            Entry("etc/nsswitch.conf", content=b"hosts: files dns\n"),
            Entry("etc/os-release", link="../usr/lib/os-release"),
            Entry("usr/lib/os-release", content=under(root, OS_RELEASE).read_bytes()),
            # The package's own list: a machine's bundle may hold authorities of its owner.
            Entry("etc/ssl/certs/ca-certificates.crt", content=authorities(root)),
        ]
        loaded = libraries(program, machine)
        self.packages.update(debian.owners(loaded, root))
        for library in loaded:
            target = str(library).removeprefix("/usr").removeprefix("/")
            content = under(root, library).read_bytes()
            self.debian.append(Entry(f"usr/{target}", 0o755, content))
        # The loader's folder on some processors.
        if any(library.is_relative_to("/lib64") for library in loaded):
            self.debian.append(Entry("lib64", link="usr/lib64"))
        for package in sorted(self.packages):
            self.debian.append(
                Entry(f"{DOCUMENTS}/{package.name}/copyright", content=package.copyright())
            )
            # Scanners of images without a package manager look for packages here.
            self.debian.append(
                Entry(f"var/lib/dpkg/status.d/{package.name}", content=package.control())
            )
        for part in self.included:
            if part.name not in {one.name for one in self.packages}:
                path = f"{DOCUMENTS}/{part.name}/copyright"
                self.debian.append(Entry(path, content=part.copyright()))
        for text in sorted(under(root, LICENCES).iterdir()):
            path = f"usr/share/common-licenses/{text.name}"
            self.debian.append(Entry(path, content=text.read_bytes()))

    def sha256(self) -> str:
        """Returns the digest of the program in the image."""
        return hashlib.sha256(self._program).hexdigest()

    def ours(self, bill: Callable[[str], sbom.Subject]) -> tuple[list[Entry], bytes]:
        """Returns the upper layer and the bill of materials in it."""
        document = sbom.spdx(bill(self.sha256()), self.packages, self.included)
        folder = f"{DOCUMENTS}/counterweight-server"
        return [
            Entry(PROGRAM, 0o755, self._program),
            Entry(f"{folder}/LICENSE", content=self._licence),
            Entry(f"{folder}/sbom.spdx.json", content=document),
        ], document


def authorities(root: pathlib.Path) -> bytes:
    """Returns the certificates of Debian's package ca-certificates, in one text."""
    folder = under(root, AUTHORITIES)
    texts = [file.read_bytes().rstrip() + b"\n" for file in sorted(folder.glob("*.crt"))]
    if not texts:
        raise LookupError(f"{folder} has no certificates; install ca-certificates")
    return b"".join(texts)
