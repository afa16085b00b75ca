"""``client/python/examples/async_rl``: the parts of its quick run, and its report."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from server_process import binary

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "client/python/examples/async_rl"


@pytest.fixture
def report() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("async_rl_report", FOLDER / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


@pytest.mark.usefixtures("local_library")
@pytest.mark.timeout(600)
def test_quick(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    finished = subprocess.run(
        [sys.executable, FOLDER / "run.py", "--quick", "--out", tmp_path],
        env={**os.environ, "COUNTERWEIGHT_SERVER": str(binary())},
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    lag, steps = results["settings"]["lag"], results["settings"]["steps"]
    losses = {}
    for method, runs in results["curves"].items():
        records = [record for record in runs["0"] if "losses" in record]
        assert [record["step"] for record in records] == list(range(1, steps + 1))
        # The weights that sampled are as old as the setting, whichever process is faster.
        assert [r["sampled_by"] for r in records] == [max(0, step - lag) for step in range(steps)]
        losses[method] = [record["losses"] for record in records]
        assert any(map(any, losses[method]))
    assert losses["none"] != losses["token TIS"]
    (killed,) = results["same"].values()
    assert killed["equal"]
    assert killed["backends"]["local:cpu"] > 0
    assert killed["backends"]["cpu"] >= steps // 2


def run_of(losses: list[float], rewards: list[float], weights: str = "a") -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"step": 0, "reward": rewards[0]}]
    for step, (loss, reward) in enumerate(zip(losses, rewards[1:], strict=True), 1):
        found = {"step": step, "losses": [loss], "k3": 0.01 * step, "kept": 0.5, "reward": reward}
        records.append(found)
    return [*records, {"weights": weights, "backends": {"cpu": len(losses)}}]


def test_report(report: ModuleType, tmp_path: pathlib.Path) -> None:
    first = run_of([0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.4, 0.2, 0.3])
    second = run_of([0.1, 0.2, 0.3, 0.4], [0.5, 0.8, 0.9, 0.7, 0.8])
    assert report.bits(first) == report.bits(second)
    nextafter = 0.2 + 2**-54
    assert nextafter != 0.2
    assert report.bits(first) != report.bits(run_of([0.1, nextafter, 0.3, 0.4], [0.5] * 5))
    assert report.bits(first) != report.bits(run_of([0.1, 0.2, 0.3, 0.4], [0.5] * 5, "b"))
    results = {
        "settings": {"lag": 8},
        "curves": {"none": {0: first, 1: second}},
        "same": {
            "none, server": {"equal": True, "backends": {"cpu": 4}},
            "none, server killed": {"equal": False, "backends": {"cpu": 2, "local:cpu": 2}},
        },
    }
    table = report.table(results)
    # Mean of the best, of the last three evaluations, of the last quarter's k3, and of the drops.
    assert "| none | 0.50 | 0.75 | 0.55 (0.30, 0.80) | 0.040 | 50% |" in table
    assert "| none, server | equal, byte for byte | cpu: 4 calls |" in table
    assert "| none, server killed | DIFFERENT | cpu: 2 calls, local:cpu: 2 calls |" in table
    pytest.importorskip("matplotlib")
    assert report.draw(results, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
