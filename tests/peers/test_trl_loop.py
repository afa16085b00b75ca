"""The loop of client/python/examples/async_rl/trl_loop.py, with TRL's own trainer."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from importlib import metadata

import pytest

for package in ("torch", "transformers", "trl"):
    pytest.importorskip(package, reason="needs TRL")
if tuple(map(int, metadata.version("trl").split(".")[:2])) < (1, 10):
    pytest.skip("CorrectionMixin needs TRL 1.10 or newer", allow_module_level=True)

sys.path.append(str(pathlib.Path(__file__).parents[1] / "e2e"))
from server_process import REPOSITORY, ServerProcess  # noqa: E402

pytestmark = pytest.mark.compares("GRPOTrainer.train")

# The process imports the release under test, as this one does.
LOOP = """
import pathlib, runpy, sys
import releases
releases.activate_release()
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
STEP = re.compile(
    r"^step +(\d+)  solved by the sampler (\d\.\d\d)(?:  k3 (\d\.\d{4}) nats)?$", re.M
)


def run_loop(target: str, method: str) -> list[tuple[str, str, str]]:
    """Returns the number, the reward and k3, empty if there is none, of each step."""
    script = REPOSITORY / "client/python/examples/async_rl/trl_loop.py"
    arguments = (f"--method={method}", "--steps=3", "--start-updates=40")
    path = os.pathsep.join((str(pathlib.Path(__file__).parent), *sys.path))
    ended = subprocess.run(
        [sys.executable, "-c", LOOP, str(script), *arguments],
        env={**os.environ, "COUNTERWEIGHT_TARGET": target, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return STEP.findall(ended.stdout)


def test_a_server_corrects_each_step() -> None:
    server = ServerProcess()
    try:
        steps = run_loop(server.address, "token_tis")
        assert [number for number, *_ in steps] == ["1", "2", "3"]
        # int4 weights answer with other probabilities than float32 ones.
        assert all(float(k3) > 0.0 for *_, k3 in steps)
        corrected = server.metric("counterweight_request_bytes_total")
        assert corrected > 0
        plain = run_loop(server.address, "none")
        assert server.metric("counterweight_request_bytes_total") == corrected
        # The same first batch, before any update.
        assert plain[0][:2] == steps[0][:2]
        assert [k3 for *_, k3 in plain] == ["", "", ""]
    finally:
        server.stop()
