#!/usr/bin/env python3
"""Packs dist/counterweight_rl-*.tar.gz, from which pip builds the wheel on Debian. Runs after .ci/setup wheel.

It has the client at its root, the sources of library and server in source/, and deploy/wheel/source_build.py as its backend.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = "client/python"
# The sources that CMake reads, without tests.
SOURCES = (
    "CMakeLists.txt",
    "LICENSE",
    "kernels",
    "proto",
    "server",
    "client/cpp",
    ".ci/protobuf",
    ".ci/debian_source",
)
BACKEND = """[build-system]
requires = ["setuptools>=68", "wheel>=0.40"]
build-backend = "source_build"
backend-path = ["."]
"""
MANIFEST = "graft source\ninclude source_build.py debian_packages.txt LICENSE\n"


def tracked(*paths: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return [name for name in told.stdout.splitlines() if (ROOT / name).is_file()]


def copy(name: str, to: pathlib.Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, to)


def debian_packages() -> list[str]:
    found = re.search(r"(?ms)^compiles=\((.*?)\)", (ROOT / ".ci/setup").read_text())
    if not found:
        sys.exit("pack_sdist: .ci/setup has no list named compiles")
    return found[1].split()


def main() -> None:
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.glob("counterweight_rl-*.tar.gz"):
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path in tracked(CLIENT):
            inside = pathlib.PurePath(path).relative_to(CLIENT)
            if inside.parts[0] != "tests":
                copy(path, folder / inside)
        for path in tracked(*SOURCES):
            copy(path, folder / "source" / path)
        copy("LICENSE", folder / "LICENSE")
        copy("deploy/wheel/source_build.py", folder / "source_build.py")
        (folder / "debian_packages.txt").write_text("\n".join(debian_packages()) + "\n")
        (folder / "MANIFEST.in").write_text(MANIFEST)
        project = folder / "pyproject.toml"
        text = re.sub(r"(?ms)\A\[build-system\]\n.*?\n\n", BACKEND + "\n", project.read_text())
        project.write_text(text)
        code = f"from setuptools.build_meta import build_sdist; build_sdist({str(dist)!r})"
        quiet = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if quiet.returncode:
            sys.exit(f"pack_sdist: setuptools failed:\n{quiet.stdout}")
    (made,) = dist.glob("counterweight_rl-*.tar.gz")
    twine = pathlib.Path(sys.executable).parent / "twine"
    subprocess.run([twine, "check", "--strict", made], check=True)
    print(f"{made.relative_to(ROOT)}: {made.stat().st_size / 1e6:.1f} MB")


main()
