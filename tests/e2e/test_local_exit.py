"""Processes that end while daemon threads are in calls of the target ``local:``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from server_process import REPOSITORY

# Each child ends its interpreter while the threads are anywhere in their calls. It is a copy of one process, which spares
# most of the time: importing the packages.
PARENT = """
import os, sys, threading
import numpy as np
import counterweight_rl as cw
tries, threads, rows, width = map(int, sys.argv[1:])
for _ in range(tries):
    child = os.fork()
    if child == 0:
        break
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"a child ended with {os.waitstatus_to_exitcode(status)}")
else:
    sys.exit()
client = cw.Client("local:")
log_probs = -np.ones((rows, width), np.float32)
mask = np.ones((rows, width), bool)
inside = threading.Barrier(threads + 1)
def loop():
    inside.wait()
    while True:
        client.correct(
            method="token_tis",
            rollout_log_probs=log_probs,
            old_log_probs=log_probs,
            response_mask=mask,
        )
for _ in range(threads):
    threading.Thread(target=loop, daemon=True).start()
inside.wait()
"""
TRIES = 10


@pytest.mark.parametrize(("threads", "rows", "width"), [(1, 4, 64), (4, 4, 64), (4, 64, 4096)])
def test_daemon_threads_do_not_abort_the_process(
    local_library: None, threads: int, rows: int, width: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "client/python")}
    numbers = [str(number) for number in (TRIES, threads, rows, width)]
    done = subprocess.run(
        [sys.executable, "-c", PARENT, *numbers],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
