"""Reads an OCI layout, checking each digest and size on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pathlib
import tarfile
from typing import Any


def blob(layout: pathlib.Path, descriptor: dict[str, Any]) -> bytes:
    """Returns the content that ``descriptor`` names."""
    kind, _, digest = descriptor["digest"].partition(":")
    content = (layout / "blobs" / kind / digest).read_bytes()
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == digest
    return content


def manifest(layout: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of the layout's one image."""
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    (listed,) = index["manifests"]
    content: dict[str, Any] = json.loads(blob(layout, listed))
    return content


def layers(layout: pathlib.Path) -> list[bytes]:
    """Returns the layers as tar files, lowest first."""
    return [gzip.decompress(blob(layout, one)) for one in manifest(layout)["layers"]]


def members(layout: pathlib.Path) -> list[tarfile.TarInfo]:
    """Returns the entries of all layers."""
    found = []
    for layer in layers(layout):
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            found += archive.getmembers()
    return found


def unpack(layout: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the files of all layers."""
    for layer in layers(layout):
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            # The newer Python's filters would change modes; the older has none.
            archive.extraction_filter = lambda member, path: member
            archive.extractall(folder)
