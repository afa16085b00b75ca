"""A server with a low limit of threads or of address space reports it."""

from __future__ import annotations

import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

import pytest
from server_process import DEADLINE_SECONDS, binary

pytestmark = pytest.mark.server_only

# The limit counts a user's threads, so root becomes a user without other threads.
USER = 54321


@pytest.mark.parametrize("limit", [1, 4, 8, 12, 16, 20])
def test_too_few_threads_are_exit_code_one(limit: int) -> None:
    is_root = os.geteuid() == 0
    if not is_root and limit > 1:
        pytest.skip("only root can become a user without other processes")

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))

    with tempfile.TemporaryDirectory(prefix="cw") as folder:
        pathlib.Path(folder).chmod(0o777)
        # The other user may lack access to the build folder.
        server = shutil.copy(binary(), folder)
        done = subprocess.run(
            [
                server,
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                f"--shared_memory_socket={folder}/memory",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
            preexec_fn=restrict,
            user=USER if is_root else None,
        )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("counterweight-server: cannot start ")
    assert "--threads" in done.stderr


def start(limit: int, *flags: str) -> subprocess.CompletedProcess[str]:
    """Starts a server with `limit` bytes of address space."""

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [binary(), "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        preexec_fn=restrict,
    )


@pytest.mark.parametrize(
    ("megabytes", "flags"),
    [
        (700, ("--max_bytes_in_flight=134217728", "--max_message_bytes=67108864")),
        (1000, ("--max_bytes_in_flight=268435456", "--max_message_bytes=67108864")),
        (2600, ()),
    ],
)
def test_too_little_address_space_is_exit_code_one(megabytes: int, flags: tuple[str, ...]) -> None:
    done = start(megabytes << 20, "--threads=2", *flags)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith(f"counterweight-server: {megabytes << 20} bytes of address space")
    assert done.stderr.count("\n") == 1
    assert "--max_bytes_in_flight=" in done.stderr
    assert "cgroup" in done.stderr
