"""Audits on Dask and Spark: the examples have the digest of one process."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys

import counterweight_rl as cw
import pytest

pytest.importorskip("pyarrow")

from counterweight_rl import audit
from recorded_logs import make_rows, write

EXAMPLES = pathlib.Path(__file__).parents[2] / "client" / "python" / "examples" / "audit_engines"
ROWS = make_rows(48, longest=120)


@pytest.mark.parametrize(("package", "name"), [("distributed", "on_dask"), ("pyspark", "on_spark")])
def test_an_example_has_the_digest_of_one_process(
    local_library: None, tmp_path: pathlib.Path, package: str, name: str
) -> None:
    pytest.importorskip(package)
    place = write(tmp_path / "log", [ROWS[:30], ROWS[30:]], group=5)
    spec = audit.Spec(methods={"token_tis": cw.Preset("token_tis")})
    parts = [audit.unit(each.path, each.group, spec) for each in audit.units(place)]
    command = [sys.executable, EXAMPLES / f"{name}.py", place]
    # Spark's workers are otherwise the python3 of PATH.
    variables = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [audit.report(functools.reduce(audit.merge, parts), spec).digest]
