"""The C++ client as its user has it: installed, found by CMake and by pkg-config, and as a Debian package."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
from server_process import ServerProcess

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
pytestmark = [pytest.mark.server_only, pytest.mark.timeout(1500)]

# The weights are those of proto/README.md: the first ratio is 1.105.
ANSWER = (HERE / "answer.txt").read_text().split()


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build() -> pathlib.Path:
    default = REPOSITORY / "build/release/counterweight-server"
    folder = pathlib.Path(os.environ.get("COUNTERWEIGHT_SERVER", default)).parent
    run("cmake", "--build", folder, "--target", "installed_client")
    return folder


@pytest.fixture(scope="module")
def prefix(build: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy that was installed elsewhere and then moved: nothing may name the first place."""
    first = tmp_path_factory.mktemp("install") / "first"
    run("cmake", "--install", build, "--component", "client", "--prefix", first)
    return first.rename(first.with_name("moved"))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = ServerProcess()
    yield started
    started.stop()


def answer(program: pathlib.Path, server: ServerProcess, libraries: pathlib.Path) -> list[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "no_proxy": "*"}
    return run(program, server.address, env=environment).split()


def libraries(prefix: pathlib.Path) -> pathlib.Path:
    (shared,) = prefix.rglob("libcounterweight-client.so")
    return shared.parent


def test_headers_name_neither_grpc_nor_protobuf(prefix: pathlib.Path) -> None:
    headers = sorted((prefix / "include/counterweight").iterdir())
    assert [header.name for header in headers] == [
        "client.h",
        "location.h",
        "options.h",
        "region.h",
        "status.h",
        "types.h",
    ]
    for header in headers:
        for included in re.findall(r"#include (.*)", header.read_text()):
            assert re.fullmatch(r'<[a-z_]+>|"counterweight/[a-z_]+\.h"', included), included


def test_shared_library_has_a_version_and_only_public_names(prefix: pathlib.Path) -> None:
    library = libraries(prefix) / "libcounterweight-client.so"
    assert "SONAME" in run("readelf", "-dW", library)
    assert "[libcounterweight-client.so.0]" in run("readelf", "-dW", library)
    names = [
        line.split(maxsplit=2)[2]
        for line in run("nm", "-DC", "--defined-only", library).splitlines()
    ]
    assert any(name.startswith("counterweight::Client::Correct(") for name in names)
    foreign = [name for name in names if not name.startswith("counterweight::")]
    inside = [name for name in names if name.startswith("counterweight::v1::")]
    assert not foreign + inside


def test_found_by_cmake(
    prefix: pathlib.Path, server: ServerProcess, tmp_path: pathlib.Path
) -> None:
    run("cmake", "-S", HERE, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path, "--parallel", 2)
    for program in ("correct", "correct_static"):
        assert answer(tmp_path / program, server, libraries(prefix)) == ANSWER
    # Its parts have the metrics of one call: five tokens, two parts, and a part that is refused.
    step = answer(tmp_path / "step", server, libraries(prefix))
    assert step[:4] == ["same", "5", "5", "2"]
    assert step[4:] == ["parts[1].sums", "labels.step", "global_counts.weight_mean"]


def test_found_by_pkg_config(
    prefix: pathlib.Path, server: ServerProcess, tmp_path: pathlib.Path
) -> None:
    folder = str(libraries(prefix) / "pkgconfig")
    for package, variable in (
        # A machine without gRPC's headers has the shared library's needs nevertheless.
        ("counterweight-client", "PKG_CONFIG_LIBDIR"),
        ("counterweight-client-static", "PKG_CONFIG_PATH"),
    ):
        environment = {**os.environ, variable: folder}
        flags = run("pkg-config", "--cflags", "--libs", package, env=environment)
        program = tmp_path / package
        run("g++", "-std=c++20", HERE / "correct.cc", "-o", program, *flags.split())
        assert answer(program, server, libraries(prefix)) == ANSWER


README_PROGRAM = """
#include <counterweight/client.h>

#include <cstdint>
#include <iostream>
#include <vector>

int main() {
  std::vector<float> rollout(64 * 512, -1.0F), old(64 * 512, -0.9F);
  const std::vector<uint8_t> mask(64 * 512, 1);
BLOCK
  return status.ok() && result.Find(counterweight::Role::kWeights)->bytes == mask.size() * 4 ? 0 : 1;
}
"""


def test_the_pages_block_runs_as_written(
    prefix: pathlib.Path, server: ServerProcess, tmp_path: pathlib.Path
) -> None:
    page = (REPOSITORY / "client/cpp/README.md").read_text()
    (block,) = [b for b in re.findall(r"```cpp\n([^`]+)```", page) if '"localhost:50051"' in b]
    source = tmp_path / "readme.cc"
    source.write_text(
        README_PROGRAM.replace("BLOCK", block.replace("localhost:50051", server.address))
    )
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(libraries(prefix) / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "counterweight-client", env=environment)
    program = tmp_path / "readme"
    run("g++", "-std=c++20", "-Wall", "-Werror", source, "-o", program, *flags.split())
    status, k3, effective_sample_size = answer(program, server, libraries(prefix))
    assert status == "OK"
    # exp(0.1) - 1 - 0.1, and equal weights.
    assert float(k3) == pytest.approx(0.00517, abs=1e-5)
    assert float(effective_sample_size) == pytest.approx(1.0)


def packages(build: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    run("cpack", "-B", folder, "-D", f"CPACK_OUTPUT_FILE_PREFIX={folder}", cwd=build)
    return sorted(folder.glob("*.deb"))


def test_debian_packages(
    build: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    server, client = packages(build, tmp_path)
    assert [one.name.partition("_")[0] for one in (server, client)] == [
        "counterweight-server",
        "libcounterweight-client-dev",
    ]
    contents = {}
    for package in (server, client):
        assert "libgrpc++1.51" in run("dpkg-deb", "--field", package, "Depends")
        unpacked = tmp_path / package.stem
        run("dpkg-deb", "-x", package, unpacked)
        contents[package] = {path.name for path in unpacked.rglob("*") if not path.is_dir()}
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
        ) as process:
            archive = tarfile.open(fileobj=process.stdout, mode="r|")  # noqa: SIM115
            assert all(member.uid == 0 for member in archive)
    wanted = {"client.h", "libcounterweight-client.so", "libcounterweight-client.a"}
    assert wanted | {"counterweight-config.cmake", "counterweight-client.pc"} < contents[client]
    assert contents[server] == {"counterweight-server", "copyright"}
    program = tmp_path / server.stem / "usr/bin/counterweight-server"
    assert run(program, "--version").startswith("counterweight-server ")

    again = packages(build, tmp_path / "again")
    assert [one.read_bytes() for one in again] == [server.read_bytes(), client.read_bytes()]
