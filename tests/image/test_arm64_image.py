"""The image for arm64, of a release's server: its files are of that processor, and its server answers in qemu."""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import struct

import counterweight_rl as cw
import layers
import numpy as np
import pytest
from conftest import REPOSITORY, pack
from server_process import ServerProcess

PROGRAM = REPOSITORY / "build/server_arm64/linked/counterweight-server"
AARCH64 = 183  # EM_AARCH64

pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(not PROGRAM.is_file(), reason="make release makes the server for arm64"),
    pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-user"),
]


@pytest.fixture(scope="module")
def arm64_image(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("arm64")
    pack("--arm64", f"--out={folder}", program=PROGRAM)
    return folder


@pytest.fixture(scope="module")
def arm64_tree(arm64_image: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("arm64_tree")
    layers.unpack(arm64_image / "oci", folder)
    return folder


def test_the_manifest_and_each_file_are_of_that_processor(
    arm64_image: pathlib.Path, arm64_tree: pathlib.Path
) -> None:
    layout = arm64_image / "oci"
    (listed,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert listed["platform"] == {"architecture": "arm64", "os": "linux"}
    config = json.loads(layers.blob(layout, layers.manifest(layout)["config"]))
    assert (config["architecture"], config["os"]) == ("arm64", "linux")
    programs = set()
    for member in layers.members(layout):
        path = arm64_tree / member.name
        content = path.read_bytes() if member.isfile() else b""
        if content.startswith(b"\x7fELF"):
            programs.add(path.name)
            assert struct.unpack_from("<H", content, 18) == (AARCH64,), member.name
    assert {"counterweight-server", "ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6"} <= programs


def test_its_packages_are_of_that_processor(
    arm64_image: pathlib.Path, arm64_tree: pathlib.Path
) -> None:
    bill = json.loads((arm64_image / "sbom.spdx.json").read_text())
    assert "arm64" in bill["documentNamespace"]
    parts = {one["name"]: one for one in bill["packages"] if "externalRefs" in one}
    shipped = arm64_tree / "var/lib/dpkg/status.d"
    assert {"libc6", "base-files", "ca-certificates"} <= {one.name for one in shipped.iterdir()}
    for name in (one.name for one in shipped.iterdir()):
        control = (shipped / name).read_text()
        assert "\nArchitecture: arm64\n" in control or "\nArchitecture: all\n" in control
        assert f"\nVersion: {parts[name]['versionInfo']}\n" in control
        assert (arm64_tree / "usr/share/doc" / name / "copyright").stat().st_size > 0
    for name in ("libc6", "libgrpc-dev", "libssl-dev"):
        assert "?arch=arm64&" in parts[name]["externalRefs"][0]["referenceLocator"]


def test_packing_twice_gives_the_same_bytes(
    arm64_image: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pack("--arm64", f"--out={tmp_path}", program=PROGRAM, TZ="Asia/Kathmandu", umask=0o077)
    for file in (f for f in arm64_image.rglob("*") if f.is_file()):
        assert file.read_bytes() == (tmp_path / file.relative_to(arm64_image)).read_bytes()


def test_its_server_answers_and_ends_on_sigterm(
    arm64_tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "counterweight-server"
    # The loader and the libraries are the image's.
    inside = f"qemu-aarch64 -L {arm64_tree} {arm64_tree}/usr/bin/counterweight-server"
    program.write_text(f'#!/bin/sh\nexec {inside} "$@"\n')
    program.chmod(0o755)
    server = ServerProcess(program=program)
    try:
        rollout = np.array([[-1.0, -1.0, -3.0, -1.0]], dtype=np.float32)
        old = np.array([[-0.9, -1.1, -1.0, -1.0]], dtype=np.float32)
        with cw.Client(server.address) as client:
            assert client.server_info().instruction_set == "generic"
            answer = client.correct(
                rollout_log_probs=rollout,
                old_log_probs=old,
                response_mask=np.array([[True, True, True, False]]),
                method=cw.Preset("token_tis", upper=1.5),
            )
        # exp(0.1), exp(-0.1), the bound in place of exp(2), and a token outside the mask.
        expected = [[1.105171, 0.904837, 1.5, 0.0]]
        np.testing.assert_allclose(answer.weights, expected, rtol=1e-6)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.stop()


def test_a_program_of_another_processor_is_one_sentence(tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match=r"image: .*--version says '.*Invalid ELF image"):
        pack("--arm64", f"--out={tmp_path}", program=pathlib.Path("/bin/true"))
