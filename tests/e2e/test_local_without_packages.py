"""The target ``local:`` in a process that has numpy and neither grpcio nor protobuf."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from local_answers import BATCHES, assert_goldens
from server_process import REPOSITORY
from transports import assert_same


@pytest.fixture(scope="module")
def local(local_library: None) -> Any:
    with cw.Client("local:") as connected:
        yield connected


@pytest.fixture(scope="module")
def answers(local_library: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("answers") / "pickle"
    script = pathlib.Path(__file__).parent / "local_answers.py"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "client/python")}
    command = [sys.executable, script, path]
    subprocess.run(command, check=True, timeout=120, env=environment)
    read: dict[str, Any] = pickle.loads(path.read_bytes())
    return read


def test_goldens(local: cw.Client, answers: dict[str, Any]) -> None:
    assert_goldens(answers, local)


@pytest.mark.parametrize("name", BATCHES)
def test_batches(local: cw.Client, answers: dict[str, Any], name: str) -> None:
    assert_same(answers[name], local.correct(**BATCHES[name]))


def test_tables(local: cw.Client, answers: dict[str, Any]) -> None:
    np.testing.assert_equal(answers["tables"], (local.list_methods(), local.server_info()))


def test_a_server_needs_grpcio() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('grpc', 'google')))\n"
        "import counterweight_rl as cw\n"
        "cw.Client('localhost:1')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: target 'localhost:1' needs grpcio: pip install \"counterweight-rl[remote]\"; "
        '"local:" needs nothing but this package'
    )
