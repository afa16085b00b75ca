"""The examples of each client run, and the loop learns only after the correction."""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import counterweight_rl as cw
import numpy as np
import pytest
from counterweight_rl.local import library
from server_process import REPOSITORY, ServerProcess, binary

CLIENT = REPOSITORY / "client"
PYTHON = CLIENT / "python/examples/loop"
BEFORE, AFTER = "expected reward 0.78\n", re.compile(r"expected reward 0\.9[789]\n")


def printed(*command: str | pathlib.Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(CLIENT / "python")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loop_in_python(local_library: None) -> None:
    assert printed(sys.executable, PYTHON / "before.py") == BEFORE
    assert AFTER.fullmatch(printed(sys.executable, PYTHON / "after.py"))


@pytest.mark.server_only
def test_the_loop_in_cpp(server: ServerProcess) -> None:
    folder = binary().parent / "client/cpp"
    assert printed(folder / "counterweight_example_before") == BEFORE
    assert AFTER.fullmatch(printed(folder / "counterweight_example_after", server.address))
    lines = printed(folder / "counterweight_example_correct", server.address).splitlines()
    assert lines[0] == "1.1052 1"
    assert "tokens 5" in lines


@pytest.mark.skipif(shutil.which("rustc") is None, reason="needs rustc: .ci/setup rust")
def test_prepared_calls_from_rust(local_library: None, tmp_path: pathlib.Path) -> None:
    """Rust declares the structs again: their numbers are those of the client, to the last digit printed."""
    source = CLIENT / "rust/prepared.rs"
    folder = library.find().parent
    run_path = f"link-arg=-Wl,-rpath,{folder}"
    printed("rustc", "-O", "-L", folder, "-C", run_path, "--out-dir", tmp_path, source)
    lines = printed(tmp_path / "prepared").splitlines()
    with cw.Client("local:") as client:
        expected = client.correct(
            rollout_log_probs=np.float32([[-1.0, -2.0, -1.0], [-1.0, -3.0, -2.0]]),
            old_log_probs=np.float32([[-1.0, -0.5, 0.0], [-2.0, -3.0, -1.9]]),
            response_mask=np.uint8([[1, 1, 0], [1, 1, 1]]),
            method="token_tis",
        )
    weights = ", ".join(f"{weight:.4f}" for weight in expected.weights.ravel())
    assert lines[0] == f"weights [{weights}]"
    assert lines[1:] == [f"{name} {value:.6f}" for name, value in sorted(expected.metrics.items())]


def test_a_correction_changes_few_lines_of_the_loop() -> None:
    """All of a loop but its first line is in both files, but for the line that takes the weights."""
    before, after = [(PYTHON / name).read_text().splitlines() for name in ("before.py", "after.py")]
    changes = list(difflib.ndiff(before[1:], after[1:]))
    assert [line for line in changes if line.startswith("- ")] == ["-     weights = reward[tokens]"]
    added = [line for line in changes if line.startswith("+ ") and line != "+ "]
    assert len(added) <= 10
    assert len(before) <= 30


def test_the_index_has_each_example() -> None:
    index = (CLIENT / "README.md").read_text().partition("\n## Examples\n")[2]
    linked = {(CLIENT / name).resolve() for name in re.findall(r"\]\(([^)#]+)\)", index)}
    assert all(path.exists() for path in linked)
    mains = [*PYTHON.glob("*.py"), *CLIENT.glob("go/examples/**/main.go")]
    mains += [*CLIENT.glob("go/cmd/*/example/*/main.go"), *CLIENT.glob("cpp/examples/*.cc")]
    mains += [*PYTHON.parent.glob("*.ipynb"), *CLIENT.glob("rust/*.rs")]
    folders = (path for path in PYTHON.parent.iterdir() if path.is_dir() and path != PYTHON)
    mains += [folder / "README.md" for folder in folders]
    mains += [CLIENT.parent / "deploy" / name / "README.md" for name in ("ray", "slurm")]
    assert linked == set(mains)
