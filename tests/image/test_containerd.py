"""The packed image under containerd, as a cluster runs it: imported, answering, drained."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import counterweight_rl as cw
import grpc
import numpy as np
import pytest
from server_process import DEADLINE_SECONDS, ServerProcess

TOOLS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
]
CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"
# Kubernetes' part, which this needs not, would look for networks.
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/socket"
"""
# The plain copy of layers works on every file system.
NATIVE = ("--snapshotter", "native")


@pytest.fixture(scope="module")
def ctr() -> Iterator[list[str]]:
    """Starts a containerd of this test's own; returns the command of its client."""
    # Paths of sockets are short, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="cw") as name:
        folder = pathlib.Path(name)
        config = folder / "config.toml"
        config.write_text(CONFIG.format(folder=folder))
        with (folder / "log").open("w") as log:
            daemon = subprocess.Popen(["containerd", "-c", config], stdout=log, stderr=log)
        command = ["ctr", "-a", f"{folder}/socket"]
        try:
            end = time.monotonic() + DEADLINE_SECONDS
            while subprocess.run([*command, "version"], capture_output=True).returncode != 0:
                if daemon.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"containerd: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.05)
            yield command
        finally:
            daemon.terminate()
            daemon.wait(timeout=DEADLINE_SECONDS)


def asked(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def program(ctr: list[str], image: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a program that runs the image's server with its arguments, in a container."""
    (archive,) = image.glob("*.tar")
    asked([*ctr, "images", "import", *NATIVE, str(archive)])
    (name,) = asked([*ctr, "images", "list", "-q"]).split()
    run = [*ctr, "run", "--rm", *NATIVE, "--net-host", "--read-only", name, "counterweight"]
    made = tmp_path / "run"
    made.write_text(f'#!/bin/sh\nexec {shlex.join(run)} /usr/bin/counterweight-server "$@"\n')
    made.chmod(0o755)
    return made


def test_it_answers_and_drains(ctr: list[str], program: pathlib.Path) -> None:
    server = ServerProcess("--drain_delay=3", program=program)
    try:
        task = asked([*ctr, "tasks", "list"]).splitlines()[1].split()
        assert task[0] == "counterweight" and task[2] == "RUNNING"
        status = pathlib.Path(f"/proc/{task[1]}/status").read_text()
        assert "Uid:\t65532\t65532\t65532\t65532\n" in status
        rollout = -np.random.default_rng(7).exponential(size=(8, 32)).astype(np.float32)
        mask = np.ones(rollout.shape, dtype=bool)
        with cw.Client(server.address) as client:

            def weights() -> np.ndarray:
                answer = client.correct(
                    rollout_log_probs=rollout,
                    old_log_probs=rollout,
                    response_mask=mask,
                    method="token_tis",
                )
                assert answer.weights is not None
                return answer.weights

            # Equal policies have ratios of 1.
            assert np.all(weights() == 1)
            with grpc.insecure_channel(server.address) as channel:
                watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(
                    b"", timeout=DEADLINE_SECONDS
                )
                assert next(watch) == b"\x08\x01"  # SERVING
                # ctr passes the signal on to the container.
                server.process.send_signal(signal.SIGTERM)
                assert next(watch) == b"\x08\x02"  # NOT_SERVING
                # It serves until --drain_delay is over.
                assert np.all(weights() == 1)
                watch.cancel()
        assert server.wait() == 0
        assert asked([*ctr, "tasks", "list", "-q"]) == ""
    finally:
        if asked([*ctr, "tasks", "list", "-q"]):
            subprocess.run([*ctr, "tasks", "kill", "-s", "SIGKILL", "counterweight"], check=False)
        server.stop()
