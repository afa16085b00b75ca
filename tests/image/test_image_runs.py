"""The image's files as a root file system: read-only, user 65532, through the Python client."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import subprocess

import counterweight_rl as cw
import numpy as np
import pytest
from server_process import ServerProcess

pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and bind mounts need root"),
]
# The mount ends with the process, as it is in its mount namespace.
ENTER = """#!/bin/sh
root={root}
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" &&
  exec chroot --userspec=65532:65532 "$root" "$@"
"""


@pytest.fixture
def enter(tree: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a program that runs its arguments inside the image."""
    inside = tmp_path / "inside"
    inside.write_text(ENTER.format(root=shlex.quote(str(tree))))
    inside.chmod(0o755)
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs a mount namespace, which a chroot cannot have")
    program = tmp_path / "enter"
    program.write_text(
        f'#!/bin/sh\nexec unshare --mount {inside} /usr/bin/counterweight-server "$@"\n'
    )
    program.chmod(0o755)
    return program


def test_it_answers_and_ends_on_sigterm(enter: pathlib.Path) -> None:
    server = ServerProcess(program=enter)
    try:
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        assert "Uid:\t65532\t65532\t65532\t65532\n" in status
        rng = np.random.default_rng(7)
        rollout = -rng.exponential(size=(8, 32)).astype(np.float32)
        with cw.Client(server.address) as client:
            answer = client.correct(
                rollout_log_probs=rollout,
                old_log_probs=rollout,
                response_mask=np.ones(rollout.shape, dtype=bool),
                method="token_tis",
            )
        # Equal policies have ratios of 1.
        assert np.all(answer.weights == 1)
        probe = subprocess.run([enter, f"--probe={server.address}"], check=False)
        assert probe.returncode == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        probe = subprocess.run(
            [enter, f"--probe={server.address}"], check=False, capture_output=True
        )
        assert probe.returncode == 1
    finally:
        server.stop()


def test_its_root_cannot_be_written(enter: pathlib.Path) -> None:
    answer = subprocess.run(
        [enter, "--listen=unix:/tmp/server.sock", "--metrics_listen="],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert "/tmp/server.sock" in answer.stderr
    assert "not writable" in answer.stderr
