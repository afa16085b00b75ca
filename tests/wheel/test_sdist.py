"""The source distribution: what it holds, and the wheel that pip builds from it. SDIST=1 make wheel runs the build."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
import tarfile
from typing import Any

import counterweight_rl as cw
import pytest
from conftest import REPOSITORY
from goldens import GOLDENS, correct
from server_process import ServerProcess
from transports import LOSS, SMALL, assert_same

# Compiling takes a quarter of an hour on two cores.
pytestmark = pytest.mark.timeout(3600)
SAMPLE = [name for name in sorted(GOLDENS) if "error" not in GOLDENS[name]["expect"]][::40]

# Runs in the environment of the built wheel.
ANSWERS = """
import pickle, sys
import counterweight_rl as cw
from goldens import GOLDENS, correct
with cw.Client("local:") as client:
    answers = {name: correct(client, GOLDENS[name]) for name in sys.argv[2:]}
    answers["info"] = client.server_info()
answers["file"] = cw.__file__
pickle.dump(answers, open(sys.argv[1], "wb"))
"""


@pytest.fixture(scope="module")
def sdist() -> pathlib.Path:
    (found,) = (REPOSITORY / "dist").glob("counterweight_rl-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def unpacked(sdist: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="module")
def from_source(sdist: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The bin folder of an environment with the wheel that pip builds: many minutes."""
    if not os.environ.get("SDIST"):
        pytest.skip("compiles everything: SDIST=1 make wheel")
    folder = tmp_path_factory.mktemp("from-source")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "--disable-pip-version-check", "--quiet"]
    wheels = tmp_path_factory.mktemp("wheels")
    # Other packages are wheels.
    command = [*pip, "wheel", "--no-deps", "--no-binary", "counterweight-rl", "-w", wheels, sdist]
    subprocess.run(command, check=True, timeout=3600)
    (wheel,) = wheels.iterdir()
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    subprocess.run([*pip, "install", f"{wheel}[remote]"], check=True, timeout=300)
    return folder / "bin"


def test_it_holds_the_licence_and_what_compiles(unpacked: pathlib.Path) -> None:
    assert "Apache License" in (unpacked / "LICENSE").read_text()
    assert (unpacked / "source/kernels/CMakeLists.txt").is_file()
    assert os.access(unpacked / "source/.ci/protobuf", os.X_OK)
    assert "libgrpc++-dev" in (unpacked / "debian_packages.txt").read_text().split()
    assert not (unpacked / "source/tests").exists()


@pytest.mark.parametrize(
    ("dpkg", "sentence"),
    [
        ("echo 'g++ installed'", "Debian packages are missing; as root: apt-get install ca-cert"),
        (None, "it is built on Debian, and this machine has no dpkg"),
    ],
)
def test_one_sentence_names_what_is_missing(
    unpacked: pathlib.Path, tmp_path: pathlib.Path, dpkg: str | None, sentence: str
) -> None:
    if dpkg is not None:
        program = tmp_path / "dpkg-query"
        program.write_text(f"#!/bin/sh\n{dpkg}\n")
        program.chmod(0o755)
    code = "import source_build; source_build.build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=unpacked,
        env={"PATH": f"{tmp_path}:/bin-of-nothing", "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"counterweight-rl from source: {sentence}")
    assert len(done.stderr.splitlines()) == 1
    assert " g++ " not in done.stderr


def test_its_library_gives_the_trees_bytes(
    from_source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "COUNTERWEIGHT_LIBRARY")
    }
    environment["PYTHONPATH"] = str(REPOSITORY / "tests/e2e")
    path = tmp_path / "pickle"
    subprocess.run(
        [from_source / "python", "-c", ANSWERS, path, *SAMPLE],
        check=True,
        timeout=300,
        cwd="/",
        env=environment,
    )
    answers: dict[str, Any] = pickle.loads(path.read_bytes())
    assert pathlib.Path(answers["file"]).is_relative_to(from_source.parent)
    monkeypatch.setenv(
        "COUNTERWEIGHT_LIBRARY", str(REPOSITORY / "build/release/libcounterweight.so")
    )
    with cw.Client("local:") as tree:
        assert answers["info"].instruction_set == tree.server_info().instruction_set
        for name in SAMPLE:
            assert_same(answers[name], correct(tree, GOLDENS[name]))


def test_its_server_gives_the_trees_bytes(
    from_source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_SERVER", str(from_source / "counterweight-server"))
    server = ServerProcess()
    monkeypatch.setenv(
        "COUNTERWEIGHT_LIBRARY", str(REPOSITORY / "build/release/libcounterweight.so")
    )
    try:
        with cw.Client(server.address) as client, cw.Client("local:") as tree:
            for batch in SMALL.values():
                assert_same(
                    client.correct(method=LOSS, **batch), tree.correct(method=LOSS, **batch)
                )
    finally:
        server.stop()
