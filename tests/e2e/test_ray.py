"""The actor of deploy/ray in a Ray cluster of one node."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, REPOSITORY, binary

ray: Any = pytest.importorskip("ray", reason="needs Ray: pip install ray")
FOLDER = REPOSITORY / "deploy/ray"
sys.path.append(str(FOLDER))

import counterweight_ray  # noqa: E402

pytestmark = pytest.mark.server_only


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    paths = os.pathsep.join(str(pathlib.Path(path or ".").resolve()) for path in sys.path)
    environment = {"env_vars": {"PYTHONPATH": paths}}
    ray.init(num_cpus=1, include_dashboard=False, runtime_env=environment, log_to_driver=False)
    yield
    ray.shutdown()


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while pathlib.Path(f"/proc/{pid}").exists():
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
        if state == "Z":
            return
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def ask_until(deadline: float) -> None:
    while time.monotonic() < deadline:
        counterweight_ray.local_target()


def corrected(batch: dict[str, Any]) -> bytes:
    with cw.Client(counterweight_ray.local_target(), transport="shared_memory") as client:
        return client.correct(method="token_tis", **batch).weights.tobytes()


def test_tasks_share_memory_with_their_nodes_server() -> None:
    servers = counterweight_ray.start_everywhere(binary(), threads=1)
    again = counterweight_ray.start_everywhere(binary())
    pids = ray.get([server.pid.remote() for server in (*servers, *again)])
    assert len(servers) == 1
    assert pids[0] == pids[1]
    batch = padded_batch()
    assert ray.get(ray.remote(corrected).remote(batch)) == corrected(batch)
    counterweight_ray.stop(servers)
    wait_for_end(pids[0])
    with pytest.raises(ValueError, match="actor"):
        counterweight_ray.local_target()


def test_a_killed_actor_ends_its_server() -> None:
    (server,) = counterweight_ray.start_everywhere(binary())
    pid = ray.get(server.pid.remote())
    ray.kill(server)
    wait_for_end(pid)


def test_a_crashed_actor_ends_its_server_and_starts_another() -> None:
    servers = counterweight_ray.start_everywhere(binary())
    pid = ray.get(servers[0].pid.remote())
    actor = int(pathlib.Path(f"/proc/{pid}/stat").read_text().split()[3])
    os.kill(actor, signal.SIGKILL)
    wait_for_end(pid)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            assert ray.get(servers[0].pid.remote()) != pid
            break
        except ray.exceptions.RayActorError:
            assert time.monotonic() < deadline, "Ray does not start the actor again"
            time.sleep(0.05)
    counterweight_ray.stop(servers)


def test_the_kernel_ends_the_server_of_a_killed_process() -> None:
    """Ray 2.60 ends the processes of its workers too; other releases may not."""
    script = (
        f"import signal, counterweight_ray as c; s = c._Server({str(binary())!r}, {{}}); "
        "print('pid', s.pid(), flush=True); signal.pause()"
    )
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        # The server writes there too.
        pid = next(int(line.split()[1]) for line in owner.stdout if line.startswith("pid "))
        owner.kill()
        owner.wait()
        wait_for_end(pid)


def test_a_server_that_ended_is_reported() -> None:
    (server,) = counterweight_ray.start_everywhere(binary())
    os.kill(ray.get(server.pid.remote()), signal.SIGKILL)
    wait_for_end(ray.get(server.pid.remote()))
    with pytest.raises(RuntimeError, match="ended with -9"):
        # The first thread has ended before the process as a whole has.
        ask_until(time.monotonic() + DEADLINE_SECONDS)
    with pytest.raises(RuntimeError, match="ended with -9"):
        counterweight_ray.start_everywhere(binary())
    # An actor of an earlier call outlives the failure of a later one.
    assert ray.get(server.pid.remote()) > 0
    counterweight_ray.stop([server])


def test_a_server_that_does_not_start_is_an_error() -> None:
    with pytest.raises(ray.exceptions.RayActorError, match="ended with 2"):
        counterweight_ray.start_everywhere(binary(), no_such_flag=1)
