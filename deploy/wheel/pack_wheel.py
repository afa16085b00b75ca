#!/usr/bin/env python3
"""Packs what make_wheel has linked.

Usage: pack_wheel.py [--arm64] FOLDER SERVER, or pack_wheel.py --cuda FOLDER TOOLKIT

FOLDER has libcounterweight.so; SERVER is the program of deploy/release/make_server. Licences and versions of Debian's
packages in them go into the wheel. With --cuda it has the library alone, for the wheel counterweight-rl-cu13; TOOLKIT is
CUDA's folder.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "deploy/image"))

import cuda as cuda_toolkit  # noqa: E402
import debian  # noqa: E402

GLIBC = (2, 28)
# Packages behind the library's code, by processor: sources that .ci compiles, and g++'s runtime.
OF_THE_LIBRARY = {
    "x86_64": ("libprotobuf-dev", "libstdc++-12-dev"),
    "aarch64": ("libprotobuf-dev", "libstdc++-12-dev-arm64-cross"),
}


def run(*command: object, cwd: pathlib.Path | None = None) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


@dataclasses.dataclass(frozen=True)
class Part:
    """Other people's code in a wheel."""

    name: str
    version: str
    purl: str
    license: bytes


def parts_of(packages: Iterable[debian.Package]) -> list[Part]:
    return [Part(one.name, one.version, one.url, one.copyright()) for one in sorted(packages)]


def of_the_library(processor: str) -> list[Part]:
    return parts_of(debian.package(name) for name in OF_THE_LIBRARY[processor])


def unwind() -> Part:
    """LLVM's libunwind, as ziglang has it."""
    version = run(sys.executable, "-m", "ziglang", "version").strip()
    zig = run(sys.executable, "-c", "import ziglang; print(ziglang.__path__[0])").strip()
    text = pathlib.Path(zig) / "lib/libunwind/LICENSE.TXT"
    return Part("libunwind", version, f"pkg:pypi/ziglang@{version}", text.read_bytes())


def bill_of_materials(name: str, version: str, parts: Iterable[Part]) -> str:
    """Returns CycloneDX's JSON."""
    components = [
        {"type": "library", "name": part.name, "version": part.version, "purl": part.purl}
        for part in parts
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
    }
    return json.dumps({**bill, "components": components}, indent=1) + "\n"


def pack(
    source: pathlib.Path,
    processor: str,
    parts: list[Part],
    programs: Iterable[pathlib.Path] = (),
) -> None:
    """Makes dist's wheel of a Python project that has the library in its package."""
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{processor}"
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    work = source.parent
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel")
    run(*pip, "--no-deps", "--no-build-isolation", "-w", work, source)
    (pure,) = work.glob("*.whl")
    run(sys.executable, "-m", "wheel", "unpack", "-d", work / "wheel", pure)
    (tree,) = (work / "wheel").iterdir()
    (info,) = tree.glob("*.dist-info")
    name, _, version = tree.name.partition("-")
    for old in dist.glob(f"{name}-*_{processor}.whl"):
        old.unlink()
    for program in programs:
        scripts = tree / f"{tree.name}.data/scripts"
        scripts.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, scripts)
    licenses = info / "licenses/third_party"
    licenses.mkdir(parents=True)
    for part in parts:
        # The library and the server have protobuf of two versions.
        (licenses / f"{part.name}-{part.version}").write_bytes(part.license)
    (info / "sboms").mkdir()
    bill = bill_of_materials(name.replace("_", "-"), version, parts)
    (info / "sboms/counterweight.cdx.json").write_text(bill)
    about = info / "WHEEL"
    tags = {"Tag": f"Tag: py3-none-{tag}", "Root-Is-Purelib": "Root-Is-Purelib: false"}
    lines = re.sub(r"(?m)^(Root-Is-Purelib|Tag): .*$", lambda m: tags[m[1]], about.read_text())
    about.write_text(lines)
    run(sys.executable, "-m", "wheel", "pack", "-d", dist, tree)
    (wheel,) = dist.glob(f"{name}-*_{processor}.whl")
    bin_folder = pathlib.Path(sys.executable).parent
    shown = run(bin_folder / "auditwheel", "show", wheel)
    found = re.search(rf'"manylinux_(\d+)_(\d+)_{processor}"', shown)
    # A wheel that an older glibc can load is loaded by this one too.
    if found is None or (int(found[1]), int(found[2])) > GLIBC:
        sys.exit(f"pack_wheel: auditwheel does not call it {tag} or older:\n{shown}")
    run(bin_folder / "twine", "check", "--strict", wheel)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


def client(folder: pathlib.Path, server: pathlib.Path, work: pathlib.Path, processor: str) -> None:
    source = work / "client"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests", "cu13")
    shutil.copytree(ROOT / "client/python", source, ignore=ignored)
    shutil.copy(ROOT / "LICENSE", source)
    shutil.copy(folder / "libcounterweight.so", source / "counterweight_rl")
    parts = [*of_the_library(processor), *parts_of(debian.linked(server)), unwind()]
    pack(source, processor, parts, [server])


def cuda(folder: pathlib.Path, toolkit: pathlib.Path, work: pathlib.Path) -> None:
    source = work / "cu13"
    shutil.copytree(ROOT / "client/python/cu13", source)
    shutil.copy(ROOT / "LICENSE", source)
    shutil.copy(folder / "libcounterweight.so", source / "counterweight_rl_cu13")
    text = (ROOT / "client/python/counterweight_rl/_version.py").read_text()
    version = text.partition('__version__ = "')[2].partition('"')[0]
    (source / "version.txt").write_text(version)
    # Both have one contract, so they are updated together.
    (source / "requirements.txt").write_text(f"counterweight-rl=={version}\n")
    runtime = cuda_toolkit.runtime(toolkit)
    linked = Part(runtime.name, runtime.version, runtime.url, runtime.license)
    parts = [*of_the_library("x86_64"), unwind(), linked]
    pack(source, "x86_64", parts)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        first, second = map(pathlib.Path, sys.argv[-2:])
        if sys.argv[1] == "--cuda":
            cuda(first, second, work)
        else:
            client(first, second, work, "aarch64" if sys.argv[1] == "--arm64" else "x86_64")


main()
