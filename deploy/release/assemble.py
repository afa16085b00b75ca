#!/usr/bin/env python3
"""Fills dist/release with what deploy/release/make_release has built. Usage: assemble.py [--without-cuda | --check]

--check only prints the tag's commit time, or refuses with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import platform
import shutil
import sys
from collections.abc import Callable, Mapping

import archive
import bills
import notes
import tag

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Folders of Debian packages, by their architecture.
PACKAGES = {"amd64": "build/release/deb", "arm64": "build/wheel/arm64/release/deb"}


def one(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    """Returns the only file of that name; raises Refusal otherwise."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        what = ", ".join(file.name for file in found) or "nothing"
        raise tag.Refusal(
            f"{folder} has {what} where one {pattern} is needed; delete it and start again"
        )
    return found[0]


def write(folder: pathlib.Path, files: Mapping[str, bytes]) -> None:
    """Empties ``folder``, and writes ``files`` and their checksums."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines = []
    for name, content in sorted(files.items()):
        (folder / name).write_bytes(content)
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))


def check_image(bill: bytes, release: tag.Release) -> None:
    """Raises Refusal if the image's server was compiled from another commit."""
    (server,) = [each for each in json.loads(bill)["packages"] if "checksums" in each]
    commit = server["downloadLocation"].rpartition("@")[2]
    if not release.commit.startswith(commit):
        raise tag.Refusal(
            f"the server is of commit {commit}, not of {release.tag}; run make release"
        )


def collect(root: pathlib.Path, release: tag.Release, *, cuda: bool) -> dict[str, bytes]:
    """Returns the files of the release by name, and of each the bill of materials."""
    version = release.version
    files: dict[str, bytes] = {}
    parts: dict[str, list[bills.Part]] = {}

    def add(name: str, content: bytes, inside: Callable[[bytes], list[bills.Part]]) -> None:
        files[name], parts[name] = content, inside(content)

    patterns = [f"counterweight_rl-{version}-*_{cpu}.whl" for cpu in ("x86_64", "aarch64")]
    for pattern in [*patterns, *([f"counterweight_rl_cu13-{version}-*.whl"] if cuda else [])]:
        wheel = one(root / "dist", pattern)
        add(wheel.name, wheel.read_bytes(), bills.of_wheel)
    source = one(root / "dist", f"counterweight_rl-{version}.tar.gz")
    add(source.name, archive.again(source.read_bytes(), release.epoch), bills.of_source)
    add(f"counterweight-{version}.tgz", archive.chart(root), bills.of_chart)
    for architecture, place in PACKAGES.items():
        for package in ("counterweight-server", "libcounterweight-client-dev"):
            path = one(root / place, f"{package}_{version}_{architecture}.deb")
            files[path.name], parts[path.name] = path.read_bytes(), bills.of_deb(path)
    for name, inside in parts.items():
        files[f"{name}.spdx.json"] = bills.write(name, files[name], inside, release)
    for variant in ("amd64", "arm64", *(["amd64-cuda"] if cuda else [])):
        folder = root / "build/image" / variant
        bill = (folder / "sbom.spdx.json").read_bytes()
        check_image(bill, release)
        name = f"counterweight-server-{version}-{variant}.oci.tar"
        files[name] = one(folder, f"counterweight-server-{version}*.tar").read_bytes()
        files[f"{name}.spdx.json"] = bill
    module = bills.of_go((root / "client/go/go.mod").read_text())
    name = f"counterweight-go-{version}"
    files[f"{name}.spdx.json"] = bills.write(name, None, module, release)
    page = notes.write((root / "CHANGELOG.md").read_text(), release, notes.missing(cuda=cuda))
    return files | {"RELEASE_NOTES.md": page.encode()}


def check(root: pathlib.Path) -> tag.Release:
    """Returns the release; raises Refusal where there is none, or on a machine that makes none."""
    machine = platform.machine()
    if machine != "x86_64":
        raise tag.Refusal(f"releases are made on x86-64 only, and this machine is {machine}")
    release = tag.find(root)
    notes.section((root / "CHANGELOG.md").read_text(), release.version)
    return release


def main() -> None:
    try:
        release = check(ROOT)
        if sys.argv[1:] == ["--check"]:
            print(release.epoch)
            return
        os.environ["SOURCE_DATE_EPOCH"] = str(release.epoch)
        folder = ROOT / "dist/release"
        cuda = sys.argv[1:] != ["--without-cuda"]
        write(folder, collect(ROOT, release, cuda=cuda))
    except tag.Refusal as refusal:
        sys.exit(f"release: {refusal}")
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.relative_to(ROOT)}")
    print(f"release: {release.tag} lacks:")
    print("\n".join(f"release: - {line}" for line in notes.missing(cuda=cuda)))
    print("release: deploy/release/publish prints the steps that need accounts and keys")


if __name__ == "__main__":
    main()
