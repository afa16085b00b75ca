from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import layers
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests/e2e"))  # the server as a process

from server_process import binary  # noqa: E402

PACK = REPOSITORY / "deploy/image/pack.py"


def pack(
    *flags: str, program: pathlib.Path | None = None, umask: int = 0o022, **environment: str
) -> str:
    """Runs the packer as `make image` does, with ``program`` (None: the server); returns its output."""
    answer = subprocess.run(
        [sys.executable, PACK, f"--program={program or binary()}", *flags],
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
        env={**os.environ, **environment},
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns the packer's output folder."""
    folder = tmp_path_factory.mktemp("image")
    pack(f"--out={folder}")
    return folder


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory, image: pathlib.Path) -> pathlib.Path:
    """Returns the image's files, unpacked from its layers."""
    folder = tmp_path_factory.mktemp("tree")
    folder.chmod(0o755)
    layers.unpack(image / "oci", folder)
    return folder
