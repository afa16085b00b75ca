from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests/e2e"))


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    return pathlib.Path(os.environ["WHEEL"])


@pytest.fixture(scope="session")
def installed(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The bin folder of an environment with the wheel and what it brings."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "--disable-pip-version-check", "--quiet", "install", wheel]
    subprocess.run(pip, check=True, timeout=300)
    return folder / "bin"
