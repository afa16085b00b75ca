#!/usr/bin/env python3
"""Fills dist/release with what deploy/release/make_release has built. Usage: assemble.py [--check]

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
from collections.abc import Mapping

import archive
import bills
import notes
import tag

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": "amd64"}


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


def collect(root: pathlib.Path, release: tag.Release, architecture: str) -> dict[str, bytes]:
    """Returns the files of the release by name."""
    version = release.version
    wheels = [
        one(root / "dist", f"counterweight_rl-{version}-*_{processor}.whl")
        for processor in ("x86_64", "aarch64")
    ]
    source = one(root / "dist", f"counterweight_rl-{version}.tar.gz")
    image = one(root / "build/image", f"counterweight-server-{version}.tar")
    files = {
        source.name: archive.again(source.read_bytes(), release.epoch),
        f"counterweight-server-{version}-{architecture}.oci.tar": image.read_bytes(),
        f"counterweight-{version}.tgz": archive.chart(root),
    }
    files |= {wheel.name: wheel.read_bytes() for wheel in wheels}
    parts = {
        **{wheel.name: bills.of_wheel(files[wheel.name]) for wheel in wheels},
        source.name: bills.of_source(files[source.name]),
        f"counterweight-{version}.tgz": bills.of_chart(files[f"counterweight-{version}.tgz"]),
    }
    for package in ("counterweight-server", "libcounterweight-client-dev"):
        path = one(root / "build/release/deb", f"{package}_{version}_{architecture}.deb")
        files[path.name], parts[path.name] = path.read_bytes(), bills.of_deb(path)
    for name, inside in parts.items():
        files[f"{name}.spdx.json"] = bills.write(name, files[name], inside, release)
    image_bill = (root / "build/image/sbom.spdx.json").read_bytes()
    check_image(image_bill, release)
    files[f"counterweight-server-{version}-{architecture}.oci.tar.spdx.json"] = image_bill
    module = bills.of_go((root / "client/go/go.mod").read_text())
    name = f"counterweight-go-{version}"
    files[f"{name}.spdx.json"] = bills.write(name, None, module, release)
    page = notes.write((root / "CHANGELOG.md").read_text(), release)
    return files | {"RELEASE_NOTES.md": page.encode()}


def check(root: pathlib.Path) -> tuple[tag.Release, str]:
    """Returns the release and this machine's architecture; raises Refusal."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise tag.Refusal(
            f"releases are made for x86-64 only so far, and this machine is {machine}"
        )
    release = tag.find(root)
    notes.section((root / "CHANGELOG.md").read_text(), release.version)
    return release, MACHINES[machine]


def main() -> None:
    try:
        release, architecture = check(ROOT)
        if sys.argv[1:] == ["--check"]:
            print(release.epoch)
            return
        os.environ["SOURCE_DATE_EPOCH"] = str(release.epoch)
        folder = ROOT / "dist/release"
        write(folder, collect(ROOT, release, architecture))
    except tag.Refusal as refusal:
        sys.exit(f"release: {refusal}")
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.relative_to(ROOT)}")
    print(f"release: {release.tag} for {architecture}. It lacks:")
    print("\n".join(f"release: - {line}" for line in notes.MISSING))
    print("release: deploy/release/publish prints the steps that need accounts and keys")


if __name__ == "__main__":
    main()
