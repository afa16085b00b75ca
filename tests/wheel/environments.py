"""Environments with wheels, and what their libraries answer."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import counterweight_rl as cw
from conftest import REPOSITORY
from local_answers import BATCHES, assert_goldens
from transports import assert_same


def install(folder: pathlib.Path, *wheels: pathlib.Path) -> pathlib.Path:
    """Makes an environment with the wheels and what they bring; returns its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "--disable-pip-version-check", "--quiet", "install", *wheels]
    subprocess.run(pip, check=True, timeout=300)
    return folder / "bin"


def run(*words: object, **settings: Any) -> str:
    # Another folder than the checkout, where the library would be found too.
    apart = ("PYTHONPATH", "WHEEL", "CUDA_WHEEL", "COUNTERWEIGHT_LIBRARY")
    environment = {n: v for n, v in os.environ.items() if n not in apart}
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        check=True,
        timeout=300,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=environment,
        **settings,
    )
    return done.stdout


def local_answers(installed: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """Answers of an environment's library."""
    path = folder / "pickle"
    run(installed / "python", REPOSITORY / "tests/e2e/local_answers.py", path)
    read: dict[str, Any] = pickle.loads(path.read_bytes())
    return read


def assert_answers(answers: dict[str, Any], tree: cw.Client) -> None:
    """Goldens and batches have the bytes of the checkout's library, and the same errors."""
    assert_goldens(answers, tree)
    for name, batch in BATCHES.items():
        assert_same(answers[name], tree.correct(**batch))
