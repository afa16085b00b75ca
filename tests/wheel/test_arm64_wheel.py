"""The wheel for aarch64, of ARM64=1 make wheel, in qemu: its contents, and its bytes beside those of build/release."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from conftest import REPOSITORY
from environments import assert_answers, assert_licences, run
from goldens import BLAMED_FIELDS, GOLDENS, correct
from local_answers import BATCHES
from server_process import ServerProcess
from transports import assert_same

WHEEL = pathlib.Path(os.environ.get("ARM64_WHEEL") or "none")
LIBRARY = "counterweight_rl/libcounterweight.so"
SERVER = "counterweight_rl-{}.data/scripts/counterweight-server"

# Each instruction is emulated.
pytestmark = [
    pytest.mark.skipif(not WHEEL.is_file(), reason="ARM64=1 make wheel makes it"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def python() -> list[str]:
    """The command of a Python for aarch64."""
    root = run(REPOSITORY / "deploy/release/arm64_root").strip()
    return ["qemu-aarch64", "-L", root, f"{root}/usr/bin/python3"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder in which pip, as for a machine of aarch64, has installed the wheel and what it brings."""
    folder = tmp_path_factory.mktemp("packages")
    tags = [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)]
    run(
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"),
        *("--target", folder, "--python-version", "3.11", "--only-binary", ":all:"),
        *(word for tag in tags for word in ("--platform", tag)),
        WHEEL,
    )
    return folder


@pytest.fixture(scope="module")
def answers(
    python: list[str], packages: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Answers of the wheel's library."""
    path = tmp_path_factory.mktemp("answers") / "pickle"
    places = f"PYTHONPATH={packages}"
    run("env", places, *python, REPOSITORY / "tests/e2e/local_answers.py", path, timeout=3000)
    read: dict[str, Any] = pickle.loads(path.read_bytes())
    return read


@pytest.fixture(scope="module")
def server(
    python: list[str], unpacked: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    program = unpacked / SERVER.format(cw.__version__)
    program.chmod(0o755)
    script = tmp_path_factory.mktemp("server") / "counterweight-server"
    script.write_text(f'#!/bin/sh\nexec {" ".join(python[:3])} {program} "$@"\n')
    script.chmod(0o755)
    server = ServerProcess(program=script)
    yield server
    server.stop()


def test_tag_and_licences() -> None:
    assert re.fullmatch(r"counterweight_rl-[\d.]+-py3-none-manylinux_2_28_aarch64\.whl", WHEEL.name)
    assert WHEEL.stat().st_size < 20e6
    assert_licences(WHEEL)


@pytest.mark.parametrize("name", [LIBRARY, SERVER.format(cw.__version__)])
def test_what_it_needs_of_a_machine(unpacked: pathlib.Path, name: str) -> None:
    about = run("readelf", "--file-header", "--wide", "--program-headers", "-V", unpacked / name)
    assert re.search(r"Machine: +AArch64", about)
    versions = {tuple(map(int, each)) for each in re.findall(r"GLIBC_(\d+)\.(\d+)", about)}
    assert (2, 17) in versions
    assert max(versions) <= (2, 28)
    # Some kernels for aarch64 have pages of 64 KiB.
    aligned = [int(each, 16) for each in re.findall(r"(?m)^ +LOAD .* 0x([0-9a-f]+)$", about)]
    assert aligned
    assert min(aligned) >= 0x10000


def test_goldens_of_the_library(tree: cw.Client, answers: dict[str, Any]) -> None:
    assert_answers(answers, tree)
    assert answers["tables"][0] == tree.list_methods()
    assert answers["tables"][1].instruction_set == "generic"


def test_cuda_is_refused_with_the_way_out(python: list[str], packages: pathlib.Path) -> None:
    code = "import counterweight_rl as cw; cw.Client('local:cuda')"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run("env", f"PYTHONPATH={packages}", *python, "-c", code, stderr=subprocess.PIPE)
    assert "CUDA backend, which exists for x86-64 only: compute on CPUs" in caught.value.stderr


def test_goldens_of_the_server(tree: cw.Client, server: ServerProcess) -> None:
    with cw.Client(server.address) as client:
        assert client.server_info().instruction_set == "generic"
        for name, golden in GOLDENS.items():
            if name not in BLAMED_FIELDS:
                assert_same(correct(client, golden), correct(tree, golden))
        for batch in BATCHES.values():
            assert_same(client.correct(**batch), tree.correct(**batch))
