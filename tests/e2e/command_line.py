"""Runs the command line ``counterweight`` as its user does."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
from server_process import DEADLINE_SECONDS, REPOSITORY

COMMAND = (sys.executable, "-m", "counterweight_rl.cli")
# It replaces its process.
OWN_PROCESS = ("serve",)


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = {n: v for n, v in os.environ.items() if not n.startswith("COUNTERWEIGHT_TARGET")}
    own = {"PYTHONPATH": str(REPOSITORY / "client/python"), "no_proxy": "*"}
    return {**ours, **own, **(changes or {})}


def counterweight(
    *arguments: object,
    changes: Mapping[str, str] | None = None,
    program: tuple[str, ...] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command: in this process where it can, which spares the start of Python."""
    command = list(map(str, arguments))
    if program is None and command and command[0] not in OWN_PROCESS:
        return _here(command, environment(changes))
    return subprocess.run(
        [*(program or COMMAND), *command],
        env=environment(changes),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def _here(command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    from counterweight_rl.cli import main

    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    with (
        mock.patch.object(sys, "argv", ["counterweight", *command]),
        mock.patch.dict(os.environ, variables, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(command, int(code or 0), out.getvalue(), err.getvalue())


def done(*arguments: object, **settings: Any) -> str:
    """Returns the output of a command that succeeds and is silent on stderr."""
    ended = counterweight(*arguments, **settings)
    assert ended.stderr == "", ended.stderr
    assert ended.returncode == 0
    return ended.stdout


def refused(code: int, *arguments: object, **settings: Any) -> str:
    """The sentence of a command that fails."""
    ended = counterweight(*arguments, **settings)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    return _sentence(ended.stderr)


def _sentence(printed: str) -> str:
    assert printed.startswith("counterweight: ")
    assert printed.count("\n") == 1
    assert "Traceback" not in printed
    return printed.removeprefix("counterweight: ").strip()


def batch_arrays(batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arguments of Client.correct that a file can hold."""
    return {name: value for name, value in batch.items() if isinstance(value, np.ndarray)}


def save_npz(path: pathlib.Path, batch: Mapping[str, Any]) -> pathlib.Path:
    np.savez(path, **batch_arrays(batch))
    return path


def rows_of(batch: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """The lists of a Parquet file: a packed batch by its sequences."""
    ends = np.cumsum(batch["sequence_lengths"])[:-1]
    return {
        name: np.split(array, ends)
        for name, array in batch_arrays(batch).items()
        if name != "sequence_lengths"
    }


def save_parquet(path: pathlib.Path, batch: Mapping[str, Any]) -> pathlib.Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(rows_of(batch)), path)
    return path
