"""The target ``local:`` in a process that has numpy and neither grpcio nor protobuf."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from goldens import BLAMED_FIELDS, GOLDENS, correct
from server_process import REPOSITORY
from transports import LARGE, LOSS, SMALL, assert_same

ANSWERS = """
import pickle, sys
sys.modules.update(dict.fromkeys(("grpc", "google", "google.protobuf")))  # None: no such module
sys.path += sys.argv[1:3]
import counterweight_rl as cw
from goldens import GOLDENS, correct
from test_local_without_packages import BATCHES
answers = {}
with cw.Client("local:") as client:
    for name, golden in GOLDENS.items():
        try:
            answers[name] = correct(client, golden)
        except cw.InvalidRequestError as error:
            answers[name] = (str(error), error.violations)
    for name, batch in BATCHES.items():
        answers[name] = client.correct(**batch)
    answers["tables"] = (client.list_methods(), client.server_info())
with open(sys.argv[3], "wb") as out:
    pickle.dump(answers, out)
"""
SETTINGS: dict[str, Any] = {
    "run": "a",
    "replica": "b",
    "policy_version": 0,
    "seed": 7,
}
BATCHES = {
    name: {**batch, **SETTINGS, "method": LOSS} for name, batch in {**SMALL, **LARGE}.items()
}
BATCHES["preset"] = {
    **SMALL["padded"],
    "method": cw.Preset("token_tis", upper=3.0),
    "metrics": False,
}


@pytest.fixture(scope="module")
def local(local_library: None) -> Any:
    with cw.Client("local:") as connected:
        yield connected


@pytest.fixture(scope="module")
def answers(local_library: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("answers") / "pickle"
    folders = [str(REPOSITORY / "client/python"), str(pathlib.Path(__file__).parent)]
    command = [sys.executable, "-c", ANSWERS, *folders, str(path)]
    subprocess.run(command, check=True, timeout=120)
    read: dict[str, Any] = pickle.loads(path.read_bytes())
    return read


def test_goldens(local: cw.Client, answers: dict[str, Any]) -> None:
    for name, golden in GOLDENS.items():
        if name not in BLAMED_FIELDS:
            assert_same(answers[name], correct(local, golden))
            continue
        with pytest.raises(cw.InvalidRequestError) as caught:
            correct(local, golden)
        assert answers[name] == (str(caught.value), caught.value.violations)


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
