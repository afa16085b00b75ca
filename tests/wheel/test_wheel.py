"""The wheel of make wheel: its contents, and its bytes beside those of build/release."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from typing import Any

import counterweight_rl as cw
import pytest
from conftest import REPOSITORY
from environments import assert_answers, assert_licences, local_answers, run
from goldens import BLAMED_FIELDS, GOLDENS, correct
from local_answers import BATCHES
from server_process import ServerProcess
from transports import assert_same


@pytest.fixture(scope="module")
def answers(installed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of the wheel's library, in its environment."""
    return local_answers(installed, tmp_path_factory.mktemp("answers"))


def test_size_and_tag(wheel: pathlib.Path) -> None:
    assert re.fullmatch(r"counterweight_rl-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < 20e6


def test_licences_of_all_parts(wheel: pathlib.Path) -> None:
    assert_licences(wheel)


def test_brings_numpy_alone(installed: pathlib.Path) -> None:
    listed = json.loads(run(installed / "pip", "list", "--format=json"))
    names = {package["name"] for package in listed}
    assert names - {"pip", "setuptools"} == {"counterweight-rl", "numpy"}


def test_goldens_of_the_library(tree: cw.Client, answers: dict[str, Any]) -> None:
    assert_answers(answers, tree)


def test_the_instruction_set_is_the_machines(tree: cw.Client, answers: dict[str, Any]) -> None:
    assert answers["tables"][1].instruction_set == tree.server_info().instruction_set
    assert answers["tables"] == (tree.list_methods(), tree.server_info())


def test_goldens_of_the_server(tree: cw.Client, installed: pathlib.Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTERWEIGHT_SERVER", str(installed / "counterweight-server"))
        patch.delenv("WHEEL")
        server = ServerProcess()
    try:
        with cw.Client(server.address) as client:
            assert client.server_info().instruction_set == tree.server_info().instruction_set
            for name, golden in GOLDENS.items():
                if name not in BLAMED_FIELDS:
                    assert_same(correct(client, golden), correct(tree, golden))
            for batch in BATCHES.values():
                assert_same(client.correct(**batch), tree.correct(**batch))
    finally:
        server.stop()


def test_the_readme_as_it_is_written(installed: pathlib.Path) -> None:
    text = (REPOSITORY / "README.md").read_text()
    found = re.search(
        r"## Without a server\n.*?```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL
    )
    assert found
    assert run(installed / "python", "-c", found[1]) == found[2]


def test_the_command_line(installed: pathlib.Path) -> None:
    """Its script is there, and one sentence names what else it needs."""
    ended = subprocess.run(
        [installed / "counterweight", "doctor"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        check=False,
    )
    sentence = 'this needs click: pip install "counterweight-rl[cli]"'
    assert (ended.returncode, ended.stderr) == (1, f"counterweight: {sentence}\n")
