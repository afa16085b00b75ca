"""Bills of materials (SPDX 2.3) of a release's artefacts, from what is in each of them."""

from __future__ import annotations

import dataclasses
import datetime
import email
import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from tag import Release

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "image"))

import debian
import machine
import rootfs
import sbom

SOURCE = "https://github.com/counterweight/counterweight"
ARTEFACT = "SPDXRef-artefact"
# Headers that the compiler includes into the C++ client; no file names them.
COMPILED_IN = {"libcounterweight-client-dev": ("libprotobuf-dev", "libgrpc++-dev")}
ELF = b"\x7fELF"


@dataclasses.dataclass(frozen=True, order=True)
class Part:
    """Other people's code that an artefact has or needs."""

    name: str
    version: str  # empty: any
    purl: str
    relation: str  # STATIC_LINK, DEPENDS_ON, or BUILD_DEPENDENCY_OF the artefact


def requirements(metadata: str) -> list[Part]:
    """Returns what Python's metadata requires, without extras."""
    parts = []
    for line in email.message_from_string(metadata).get_all("Requires-Dist", []):
        if "extra" not in line.partition(";")[2]:
            (name,) = re.findall(r"^[A-Za-z0-9._-]+", line)
            known = re.sub(r"[-_.]+", "-", name).lower()
            parts.append(Part(known, "", f"pkg:pypi/{known}", "DEPENDS_ON"))
    return parts


def of_wheel(content: bytes) -> list[Part]:
    """Returns the libraries that the wheel's own bill names, and its requirements."""
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        names = wheel.namelist()
        (bill,) = [json.loads(wheel.read(name)) for name in names if name.endswith(".cdx.json")]
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = wheel.read(about).decode()
    linked = [
        Part(one["name"], one["version"], one["purl"], "STATIC_LINK") for one in bill["components"]
    ]
    return linked + requirements(metadata)


def of_source(content: bytes) -> list[Part]:
    """Returns the requirements, and the Debian packages that the source distribution is compiled with."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        texts = {
            member.name.partition("/")[2]: file.read().decode()
            for member in archive
            if member.name.endswith(("/PKG-INFO", "/debian_packages.txt"))
            and (file := archive.extractfile(member))
        }
    built = [
        Part(name, "", f"pkg:deb/debian/{name}", "BUILD_DEPENDENCY_OF")
        for name in texts["debian_packages.txt"].split()
    ]
    return requirements(texts["PKG-INFO"]) + built


def of_debian(package: debian.Package, relation: str) -> Part:
    """Returns the part that an installed package is."""
    return Part(package.name, package.version, package.url, relation)


def field(path: pathlib.Path, name: str) -> str:
    """Returns a field of the control file of a Debian package."""
    command = ["dpkg-deb", "--field", str(path), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def of_deb(path: pathlib.Path) -> list[Part]:
    """Returns the packages of the libraries that the programs in a Debian package load or have in them."""
    name, architecture = (field(path, word) for word in ("Package", "Architecture"))
    target = machine.here() if architecture == machine.here().architecture else machine.arm64()
    loaded: set[debian.Package] = set()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", path, folder], check=True)
        for file in sorted(pathlib.Path(folder).rglob("*")):
            if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == ELF:
                loaded.update(debian.owners(rootfs.libraries(file, target), target.root))
    included = [debian.package(one, target.root) for one in COMPILED_IN.get(name, ())]
    if name == target.server.name:
        included = debian.linked(target.server)
    return [
        *(of_debian(one, "DEPENDS_ON") for one in loaded),
        *(of_debian(one, "STATIC_LINK") for one in included),
    ]


def of_chart(content: bytes) -> list[Part]:
    """Returns the image that the chart runs."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        (about,) = [
            one for one in archive.getnames() if one.count("/") == 1 and one.endswith("/Chart.yaml")
        ]
        file = archive.extractfile(about)
        assert file is not None
        (version,) = re.findall(r"(?m)^appVersion: (\S+)$", file.read().decode())
    name = "counterweight-server"
    return [Part(name, version, f"pkg:oci/{name}?tag={version}", "DEPENDS_ON")]


def of_go(module: str) -> list[Part]:
    """Returns the modules that the text of a go.mod requires."""
    found = re.findall(r"(?m)^\s*(?:require )?([^\s/]+\.[^\s/]+/\S+) (v\S+)", module)
    return [
        Part(one, version, f"pkg:golang/{one}@{version}", "DEPENDS_ON") for one, version in found
    ]


def write(name: str, content: bytes | None, parts: list[Part], release: Release) -> bytes:
    """Returns the document of an artefact; ``content`` is None for a tag of the repository."""
    entries, relations = [], [(sbom.DOCUMENT, "DESCRIBES", ARTEFACT)]
    for number, part in enumerate(sorted(set(parts))):
        identifier = f"SPDXRef-{number}-{re.sub('[^A-Za-z0-9.-]', '-', part.name)}"
        locator = {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": part.purl,
        }
        entry = {
            "SPDXID": identifier,
            "name": part.name,
            "downloadLocation": sbom.NONE,
            "filesAnalyzed": False,
            "licenseConcluded": sbom.NONE,
            "licenseDeclared": sbom.NONE,
            "copyrightText": sbom.NONE,
            "externalRefs": [locator],
        }
        entries.append(entry | ({"versionInfo": part.version} if part.version else {}))
        ends = (identifier, ARTEFACT) if part.relation.endswith("_OF") else (ARTEFACT, identifier)
        relations.append((ends[0], part.relation, ends[1]))
    subject: dict[str, object] = {
        "SPDXID": ARTEFACT,
        "name": name,
        "versionInfo": release.version,
        "supplier": sbom.NONE,
        "downloadLocation": f"git+{SOURCE}@{release.commit}",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": sbom.NONE,
    }
    if content is not None:
        digest = hashlib.sha256(content).hexdigest()
        subject["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
    created = datetime.datetime.fromtimestamp(release.epoch, datetime.timezone.utc)
    return sbom.document(
        f"{name}-{release.version}",
        f"{SOURCE}/spdx/{name}-{release.commit}",
        created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "deploy/release/bills.py",
        [subject, *entries],
        relations,
    )
