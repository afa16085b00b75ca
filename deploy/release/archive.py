#!/usr/bin/env python3
"""Archives whose bytes depend on nothing but their contents. Usage: archive.py FILE, which writes the Helm chart's archive."""

from __future__ import annotations

import gzip
import io
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = "deploy/helm/counterweight"
sys.path.append(str(ROOT / "deploy/image"))

from oci import Entry, tar  # noqa: E402


def compress(entries: list[Entry], time: int = 0) -> bytes:
    """Returns the .tar.gz of ``entries``, sorted by path, with one time for all."""
    plain = tar(sorted(entries, key=lambda entry: entry.path), time)
    return gzip.compress(plain, 9, mtime=time)


def chart(root: pathlib.Path) -> bytes:
    """Returns the archive that `helm install` takes: the tracked files of the chart, under its name."""
    listed = subprocess.run(
        ["git", "ls-files", "--", CHART], cwd=root, capture_output=True, text=True, check=True
    )
    above = str(pathlib.PurePosixPath(CHART).parent) + "/"
    return compress(
        [
            Entry(name.removeprefix(above), content=(root / name).read_bytes())
            for name in listed.stdout.splitlines()
        ]
    )


def again(archive: bytes, time: int) -> bytes:
    """Returns a .tar.gz with the same files, without the owners, times and order of the machine that wrote it."""
    entries = []
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old:
        for member in old:
            if member.isdir():
                entries.append(Entry(member.name, 0o755))
            elif file := old.extractfile(member):
                mode = 0o755 if member.mode & 0o100 else 0o644
                entries.append(Entry(member.name, mode, file.read()))
            else:
                raise ValueError(f"{member.name} is neither a file nor a folder")
    return compress(entries, time)


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_bytes(chart(ROOT))
