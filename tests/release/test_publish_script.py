"""publish prints the steps of what the release has, and refuses another folder."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = "deploy/release/publish"
IMAGE = "registry.invalid/a/counterweight-server:0.1.0"


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "deploy/release").mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    folder = tmp_path / "dist/release"
    folder.mkdir(parents=True)
    (folder / "RELEASE_NOTES.md").write_text("# Counterweight 0.1.0\n")
    return tmp_path


def publish(checkout: pathlib.Path) -> subprocess.CompletedProcess[str]:
    sums = subprocess.run(
        "sha256sum R* > SHA256SUMS", shell=True, cwd=checkout / "dist/release", check=False
    )
    assert sums.returncode == 0
    return said(checkout)


def said(checkout: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [checkout / SCRIPT, "registry.invalid/a"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_index_names_the_images_of_both_processors(checkout: pathlib.Path) -> None:
    lines = publish(checkout).stdout.splitlines()
    copies = [line.split("docker://")[1] for line in lines if line.startswith("skopeo copy ")]
    assert copies == [f"{IMAGE}-amd64", f"{IMAGE}-arm64"]
    (index,) = [line for line in lines if "imagetools create" in line]
    assert index.endswith(f"--tag {IMAGE} {IMAGE}-amd64 {IMAGE}-arm64")
    signed = [line.split()[-1] for line in lines if line.startswith("cosign sign ")]
    assert signed == [*copies, IMAGE]


def test_the_image_with_cuda_is_published_where_there_is_one(checkout: pathlib.Path) -> None:
    (checkout / "dist/release/counterweight-server-0.1.0-amd64-cuda.oci.tar").touch()
    lines = publish(checkout).stdout.splitlines()
    (copied,) = [line for line in lines if line.startswith("skopeo") and line.endswith("-cuda")]
    assert copied.endswith(f"docker://{IMAGE}-cuda")
    (index,) = [line for line in lines if "imagetools create" in line]
    assert "cuda" not in index


def test_a_changed_file_is_refused(checkout: pathlib.Path) -> None:
    assert publish(checkout).returncode == 0
    (checkout / "dist/release/RELEASE_NOTES.md").write_text("# Counterweight 0.2.0\n")
    refused = said(checkout)
    assert refused.returncode == 1
    assert "dist/release is not what make release wrote" in refused.stderr
