"""``counterweight`` refuses a target or a timeout that is none before it does anything."""

from __future__ import annotations

import pytest
from command_line import refused

pytest.importorskip("click")
pytest.importorskip("rich")


@pytest.mark.parametrize("command", ["methods", "demo", "doctor"])
@pytest.mark.parametrize(
    "target", ["http://localhost:50051", "localhost", "localhost:0", "unix:", "local:?threads=0"]
)
def test_a_malformed_target(command: str, target: str) -> None:
    assert refused(2, command, "--target", target).startswith(f"--target '{target}': ")
    sentence = refused(2, command, changes={"COUNTERWEIGHT_TARGET": target})
    assert sentence.startswith(f"COUNTERWEIGHT_TARGET '{target}': ")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "-inf"])
def test_a_wrong_timeout(seconds: str) -> None:
    sentence = refused(2, "methods", "--timeout", seconds)
    assert sentence.startswith("--timeout must be above 0 seconds; got ")
