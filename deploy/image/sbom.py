"""A software bill of materials: SPDX 2.3 as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

NONE = "NOASSERTION"
DOCUMENT = "SPDXRef-DOCUMENT"
SERVER = "SPDXRef-counterweight-server"


class Part(Protocol):
    """A package of Debian, or another part of the image."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def supplier(self) -> str: ...
    @property
    def origin(self) -> str: ...
    def copyright(self) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class Subject:
    """The image that the bill is about."""

    version: str
    revision: str  # commit
    created: str  # RFC 3339
    variant: str  # "cpu" or "cuda", and the architecture
    source: str  # address of the repository
    program_sha256: str


def identifier(package: Part) -> str:
    """Returns the name of the package within a document."""
    return "SPDXRef-deb-" + re.sub(r"[^A-Za-z0-9.-]", "-", package.name.replace("+", "plus"))


def entry(package: Part) -> dict[str, object]:
    """Returns what a document has about a part."""
    return {
        "SPDXID": identifier(package),
        "name": package.name,
        "versionInfo": package.version,
        "supplier": package.supplier,
        "downloadLocation": NONE,
        "filesAnalyzed": False,
        "licenseConcluded": NONE,
        "licenseDeclared": NONE,
        "licenseComments": f"/usr/share/doc/{package.name}/copyright",
        "copyrightText": NONE,
        "sourceInfo": package.origin,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.url,
            }
        ],
    }


def document(
    name: str,
    namespace: str,
    created: str,
    tool: str,
    packages: Iterable[Mapping[str, object]],
    relations: Iterable[tuple[str, str, str]],
) -> bytes:
    """Returns the JSON; ``relations`` are identifier, kind, identifier."""
    text = {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": DOCUMENT,
        "dataLicense": "CC0-1.0",
        "name": name,
        "documentNamespace": namespace,
        "creationInfo": {"created": created, "creators": [f"Tool: {tool}"]},
        "packages": list(packages),
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
    }
    return json.dumps(text, indent=1).encode() + b"\n"


def spdx(subject: Subject, files_of: Iterable[Part], compiled_in: Iterable[Part]) -> bytes:
    """Returns the document: packages with files in the image, and those the compiler included."""

    def order(package: Part) -> tuple[str, str]:
        return package.name, package.version

    shipped, included = sorted(set(files_of), key=order), sorted(set(compiled_in), key=order)
    server = {
        "SPDXID": SERVER,
        "name": "counterweight-server",
        "versionInfo": subject.version,
        "supplier": NONE,
        "downloadLocation": f"git+{subject.source}@{subject.revision}",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": NONE,
        "checksums": [{"algorithm": "SHA256", "checksumValue": subject.program_sha256}],
    }
    relations = [(DOCUMENT, "DESCRIBES", SERVER)]
    relations += [(SERVER, "DEPENDS_ON", identifier(package)) for package in shipped]
    relations += [(SERVER, "STATIC_LINK", identifier(package)) for package in included]
    name = f"counterweight-server-{subject.version}-{subject.variant}"
    return document(
        name,
        f"{subject.source}/spdx/{name}-{subject.revision}",
        subject.created,
        "deploy/image/pack.py",
        [server, *(entry(package) for package in sorted({*shipped, *included}, key=order))],
        relations,
    )
