"""The Debian packages for arm64 of `make release`, in qemu: the client is compiled against and linked, and the server answers it."""

from __future__ import annotations

import pathlib
import re
import struct
import subprocess
from collections.abc import Iterator

import bills
import pytest
from server_process import ServerProcess

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FOLDER = REPOSITORY / "build/wheel/arm64/release/deb"
CLIENT, SERVER = "libcounterweight-client-dev", "counterweight-server"
AARCH64 = 183  # EM_AARCH64
ANSWER = (HERE / "answer.txt").read_text().split()

pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="make release makes them"),
    pytest.mark.timeout(1500),
]


def run(*command: object, **options: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def package(name: str) -> pathlib.Path:
    (path,) = FOLDER.glob(f"{name}_*_arm64.deb")
    return path


@pytest.fixture(scope="module")
def root() -> pathlib.Path:
    """The folder of Debian's libraries for arm64."""
    return pathlib.Path(run(REPOSITORY / "deploy/release/arm64_root").strip())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Both packages in one folder."""
    folder = tmp_path_factory.mktemp("unpacked")
    for name in (CLIENT, SERVER):
        run("dpkg-deb", "-x", package(name), folder)
    return folder


@pytest.fixture(scope="module")
def server(
    root: pathlib.Path, unpacked: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    script = tmp_path_factory.mktemp("server") / SERVER
    script.write_text(f'#!/bin/sh\nexec qemu-aarch64 -L {root} {unpacked}/usr/bin/{SERVER} "$@"\n')
    script.chmod(0o755)
    started = ServerProcess(program=script)
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        (SERVER, {"libc6"}),
        (CLIENT, {"libc6", "libstdc++6", "libgcc-s1", "libgrpc++1.51", "libprotobuf32"}),
    ],
)
def test_the_control_file_names_processor_and_libraries(name: str, needed: set[str]) -> None:
    path = package(name)
    assert run("dpkg-deb", "--field", path, "Architecture") == "arm64\n"
    depends = run("dpkg-deb", "--field", path, "Depends")
    assert needed <= set(re.findall(r"(?:^|, )([a-z0-9.+-]+)", depends))
    # Each with a version at least, as dpkg-shlibdeps reads it from the library's package.
    assert re.search(r"libc6 \(>= 2\.\d+\)", depends)


@pytest.mark.parametrize(
    ("name", "loaded", "linked"),
    [
        (SERVER, {"libc6"}, {"libgrpc-dev", "libssl-dev"}),
        (CLIENT, {"libc6", "libgrpc++1.51", "libprotobuf32"}, {"libgrpc++-dev"}),
    ],
)
def test_the_bill_has_the_packages_of_that_processor(
    name: str, loaded: set[str], linked: set[str]
) -> None:
    parts = bills.of_deb(package(name))
    needed = {part.name for part in parts if part.relation == "DEPENDS_ON"}
    assert loaded <= needed
    assert linked <= {part.name for part in parts if part.relation == "STATIC_LINK"}
    assert all("?arch=arm64&" in part.purl for part in parts if part.name in loaded | linked)


def test_the_files_are_of_that_processor(unpacked: pathlib.Path) -> None:
    found = set()
    for file in (f for f in unpacked.rglob("*") if f.is_file() and not f.is_symlink()):
        content = file.read_bytes()
        if content.startswith(b"\x7fELF"):
            found.add(str(file.relative_to(unpacked)).partition(".so")[0])
            assert struct.unpack_from("<H", content, 18) == (AARCH64,), file
    assert found == {f"usr/bin/{SERVER}", "usr/lib/libcounterweight-client"}
    names = {file.name for file in unpacked.rglob("*")}
    assert {"client.h", "libcounterweight-client.a", "counterweight-client.pc"} < names


def test_a_program_of_the_client_has_the_answer_of_the_server(
    root: pathlib.Path, unpacked: pathlib.Path, server: ServerProcess, tmp_path: pathlib.Path
) -> None:
    folders = [
        unpacked / "usr/lib",
        *(root / one / "aarch64-linux-gnu" for one in ("usr/lib", "lib")),
    ]
    program = tmp_path / "correct"
    run(
        *("aarch64-linux-gnu-g++", "-std=c++20", HERE / "correct.cc", "-o", program),
        *("-I", unpacked / "usr/include", "-L", folders[0], "-lcounterweight-client"),
        *(f"-Wl,-rpath-link,{folder}" for folder in folders),
    )
    places = f"LD_LIBRARY_PATH={folders[0]}"
    answer = run("qemu-aarch64", "-L", root, "-E", places, program, server.address)
    assert answer.split() == ANSWER
