#!/usr/bin/env python3
"""Packs counterweight-server as a container image, without a container engine.

The image has the server, the libraries that it loads, and nothing that could start another
program. The same program on the same Debian packages gives the same bytes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

import cuda
import machine
import oci
import rootfs
import sbom

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "https://github.com/counterweight/counterweight"
# The NVIDIA container toolkit gives these parts of the driver to a container that requests them.
CUDA_ENVIRONMENT = [
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
]


def say(program: pathlib.Path, runner: machine.Machine) -> tuple[str, str]:
    """Returns the version and the commit that ``program`` names."""
    command = [*runner.run, str(program), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(r"counterweight-server (\S+)(?: \((\S+)\))?", answer.stdout)
    if not found:
        raise LookupError(f"{program} --version says {(answer.stdout or answer.stderr).strip()!r}")
    return found[1], found[2] or "unknown"


def toolkit() -> pathlib.Path:
    """Returns the folder of the CUDA toolkit that .ci/build takes."""
    environment = {**os.environ, "CUDA": "1"}
    command = [REPOSITORY / ".ci/cuda"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if said.returncode != 0:
        raise LookupError(said.stderr.strip())
    return pathlib.Path(said.stdout.strip()).parents[1]


def commit_time(revision: str) -> int:
    """Returns SOURCE_DATE_EPOCH, or the time of the commit; 0 if neither is known."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    answer = subprocess.run(
        ["git", "log", "-1", "--format=%ct", revision.rstrip("+"), "--"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(answer.stdout or 0)


def write_tree(folder: pathlib.Path, entries: list[oci.Entry]) -> None:
    """Writes ``entries`` as files, for the Dockerfile."""
    for entry in oci.parents(entries):
        path = folder / entry.path
        if entry.link:
            path.symlink_to(entry.link)
        elif entry.content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(entry.content)
        if not entry.link:
            path.chmod(entry.mode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--program", type=pathlib.Path, default=REPOSITORY / "build/release/counterweight-server"
    )
    parser.add_argument("--arm64", action="store_true", help="the program is for arm64")
    parser.add_argument("--variant", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "build/image")
    parser.add_argument("--rootfs", type=pathlib.Path, help="write the files here, not an image")
    options = parser.parse_args()
    try:
        runner = machine.arm64() if options.arm64 else machine.here()
        version, revision = say(options.program, runner)
        others = [cuda.runtime(toolkit())] if options.variant == "cuda" else []
        files = rootfs.Rootfs(options.program, REPOSITORY / "LICENSE", runner, others)
    except (LookupError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    seconds = commit_time(revision)
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    stamp = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    tag = version if options.variant == "cpu" else f"{version}-{options.variant}"
    labels = {
        "org.opencontainers.image.title": "counterweight-server",
        "org.opencontainers.image.description": "Off-policy correction for RL on language models",
        "org.opencontainers.image.version": tag,
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.created": stamp,
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.documentation": f"{SOURCE}/blob/main/deploy/README.md",
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    variant = f"{options.variant}-{runner.architecture}"
    ours, bill = files.ours(
        lambda digest: sbom.Subject(version, revision, stamp, variant, SOURCE, digest)
    )
    if options.rootfs:
        options.rootfs.mkdir(parents=True)
        write_tree(options.rootfs, files.debian + ours)
        return 0

    layout = oci.Layout(options.out / "oci")
    config = {
        "User": f"{rootfs.USER}:{rootfs.USER}",
        "Entrypoint": [f"/{rootfs.PROGRAM}"],
        "Env": ["PATH=/usr/bin", *(CUDA_ENVIRONMENT if options.variant == "cuda" else [])],
        "ExposedPorts": {"50051/tcp": {}, "9464/tcp": {}},
        "StopSignal": "SIGTERM",
        "WorkingDir": "/",
    }
    name = f"localhost/counterweight-server:{tag}"
    digest = layout.write(
        {"Debian's libraries": files.debian, "counterweight-server": ours},
        config,
        architecture=runner.architecture,
        created=stamp,
        name=name,
        labels=labels,
    )
    archive = options.out / f"counterweight-server-{tag}.tar"
    layout.archive(archive)
    (options.out / "sbom.spdx.json").write_bytes(bill)
    packed = archive.stat().st_size / 2**20
    plain = sum(len(entry.content or b"") for entry in files.debian + ours) / 2**20
    print(f"image: {name}@{digest}")
    print(f"image: {archive}, {packed:.1f} MiB; {plain:.1f} MiB unpacked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
