from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# The goldens' reader, the real server's process and the certificates.
sys.path.append(str(REPOSITORY / "tests/e2e"))

from harness import Driver, build_go  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def every_driver_is_stopped() -> Iterator[None]:
    yield
    assert not Driver.running


@pytest.fixture(scope="session")
def build() -> pathlib.Path:
    """The build folder, with the drivers."""
    default = REPOSITORY / "build/release/counterweight-server"
    folder = pathlib.Path(os.environ.get("COUNTERWEIGHT_SERVER", default)).resolve().parent
    if not (folder / "conformance/conformance_server").exists():
        pytest.fail(f"{folder}/conformance is missing: make build", pytrace=False)
    build_go(folder)
    return folder


@pytest.fixture(scope="session")
def sockets() -> Iterator[pathlib.Path]:
    """A folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)
