"""An OCI image layout, written so that the same content gives the same bytes."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any

MEDIA = "application/vnd.oci.image."
INDEX, MANIFEST = MEDIA + "index.v1+json", MEDIA + "manifest.v1+json"
CONFIG, LAYER = MEDIA + "config.v1+json", MEDIA + "layer.v1.tar+gzip"
LEVEL = 6  # of gzip; 9 takes four times as long for 1% less


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file, a folder (without content) or a symbolic link of an image; root owns all of them."""

    path: str  # relative to the image's root
    mode: int = 0o644
    content: bytes | None = None
    link: str = ""

    def header(self, time: int) -> tarfile.TarInfo:
        """Returns the header of the entry in a tar file."""
        info = tarfile.TarInfo(self.path)
        info.mode, info.mtime = self.mode, time
        if self.link:
            info.type, info.linkname = tarfile.SYMTYPE, self.link
        elif self.content is None:
            info.type = tarfile.DIRTYPE
        else:
            info.size = len(self.content)
        return info


def parents(entries: Iterable[Entry]) -> list[Entry]:
    """Returns ``entries`` and the folders above them, sorted by path."""
    known = {entry.path: entry for entry in entries}
    for path in list(known):
        for folder in pathlib.PurePosixPath(path).parents:
            if str(folder) != ".":
                known.setdefault(str(folder), Entry(str(folder), 0o755))
    return [known[path] for path in sorted(known)]


def tar(entries: Iterable[Entry], time: int = 0) -> bytes:
    """Returns a tar file of ``entries``, in their order, all of one time."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            archive.addfile(entry.header(time), io.BytesIO(entry.content or b""))
    return file.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Layout:
    """A folder with one image, as `podman load`, `skopeo` and `ctr images import` read it."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Empties ``folder``."""
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)

    def _blob(self, media: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    def write(
        self,
        layers: Mapping[str, list[Entry]],
        config: Mapping[str, Any],
        *,
        architecture: str,
        created: str,
        name: str,
        labels: Mapping[str, str],
    ) -> str:
        """Writes the image and returns its digest.

        ``layers`` has the entries by a word about each layer, lowest first; ``config`` is what the
        specification calls so; ``created`` is a time by RFC 3339; ``name`` is the reference.
        """
        blobs, differences, history = [], [], []
        for word, entries in layers.items():
            plain = tar(parents(entries))
            differences.append("sha256:" + hashlib.sha256(plain).hexdigest())
            blobs.append(self._blob(LAYER, gzip.compress(plain, LEVEL, mtime=0)))
            history.append({"created": created, "created_by": f"deploy/image: {word}"})
        platform: dict[str, Any] = {"architecture": architecture, "os": "linux"}
        configured = self._blob(
            CONFIG,
            _json(
                {
                    **platform,
                    "created": created,
                    "config": {**config, "Labels": dict(labels)},
                    "rootfs": {"type": "layers", "diff_ids": differences},
                    "history": history,
                }
            ),
        )
        manifest = self._blob(
            MANIFEST,
            _json(
                {
                    "schemaVersion": 2,
                    "mediaType": MANIFEST,
                    "config": configured,
                    "layers": blobs,
                    "annotations": dict(labels),
                }
            ),
        )
        reference = {
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
            "io.containerd.image.name": name,
        }
        listed = {**manifest, "platform": platform, "annotations": reference}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]}
        (self.folder / "index.json").write_bytes(_json(index))
        (self.folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        return str(manifest["digest"])

    def archive(self, path: pathlib.Path) -> None:
        """Writes the layout as one tar file."""
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        path.write_bytes(
            tar(Entry(str(f.relative_to(self.folder)), content=f.read_bytes()) for f in files)
        )
