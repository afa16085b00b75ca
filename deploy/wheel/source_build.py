"""The build backend of the source distribution: compiles libcounterweight.so and counterweight-server on Debian.

deploy/wheel/pack_sdist.py puts it beside pyproject.toml. setuptools makes the Python part of the wheel; the library goes into its
package and the server into its scripts. Both use the machine's own libraries, so the wheel is for this kind of machine.
"""

from __future__ import annotations

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

ROOT = pathlib.Path(__file__).resolve().parent
SOURCE = ROOT / "source"
BUILT = SOURCE / "build/release"
LIBRARY = "libcounterweight.so"
SERVER = "counterweight-server"


def refuse(why: str) -> SystemExit:
    return SystemExit(f"counterweight-rl from source: {why}")


def check_packages() -> None:
    """Ends with one sentence that names every missing package; COUNTERWEIGHT_SKIP_APT=1 trusts the machine."""
    if os.environ.get("COUNTERWEIGHT_SKIP_APT"):
        return
    if shutil.which("dpkg-query") is None:
        raise refuse(
            "it is built on Debian, and this machine has no dpkg; install the wheel instead, or set "
            "COUNTERWEIGHT_SKIP_APT=1 where the libraries come from elsewhere"
        )
    asked = (ROOT / "debian_packages.txt").read_text().split()
    command = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *asked]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in told.splitlines() if line.endswith(" installed")}
    missing = [package for package in asked if package not in installed]
    if missing:
        raise refuse(f"Debian packages are missing; as root: apt-get install {' '.join(missing)}")


def run(what: str, *command: object) -> None:
    # A folder that is unpacked within another checkout has not that one's revision.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT)}
    words = [str(word) for word in command]
    print("+", *words, flush=True)
    if subprocess.run(words, check=False, env=environment).returncode:
        raise refuse(f"{what} failed; the reason is above (pip shows it with -v)")


def compile_programs() -> None:
    run("compiling protobuf for the library", SOURCE / ".ci/protobuf")
    options = ("CUDA", "BUILD_TESTS", "BUILD_BENCHMARKS")
    run(
        "configuring",
        *("cmake", "-S", SOURCE, "-B", BUILT, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-DCOUNTERWEIGHT_{option}=OFF" for option in options),
    )
    if not (SOURCE / "build/protobuf/libprotobuf.a").is_file():
        raise refuse(
            "it needs protobuf 3, as Debian 12 and 13 have it, and another version is installed"
        )
    run("compiling", "cmake", "--build", BUILT, "--target", SERVER, "counterweight_embedded")


def add_server(pure: pathlib.Path, folder: pathlib.Path) -> str:
    """Writes the wheel with the server into ``folder``; returns its name."""
    tag = f"py3-none-{re.sub('[^a-z0-9_]', '_', sysconfig.get_platform().lower())}"
    with tempfile.TemporaryDirectory() as name:
        wheel = (sys.executable, "-m", "wheel")
        run("unpacking the wheel", *wheel, "unpack", "-d", name, pure)
        (tree,) = pathlib.Path(name).iterdir()
        scripts = tree / f"{tree.name}.data/scripts"
        scripts.mkdir(parents=True)
        shutil.copy(BUILT / SERVER, scripts)
        (about,) = tree.glob("*.dist-info/WHEEL")
        text = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", about.read_text())
        about.write_text(re.sub(r"(?m)^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", text))
        packed = pathlib.Path(name) / "packed"
        packed.mkdir()
        run("packing the wheel", *wheel, "pack", "-d", packed, tree)
        (made,) = packed.iterdir()
        shutil.copy(made, folder)
        return made.name


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517."""
    if platform.system() != "Linux":
        raise refuse(f"library and server are for Linux, and this is {platform.system()}")
    check_packages()
    compile_programs()
    shutil.copy(BUILT / LIBRARY, ROOT / "counterweight_rl")
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_wheel(folder, config_settings, metadata_directory)
        return add_server(pathlib.Path(folder) / name, pathlib.Path(wheel_directory))
