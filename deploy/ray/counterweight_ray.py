"""One Counterweight server on each node of a Ray cluster, owned by an actor.

    import counterweight_ray

    servers = counterweight_ray.start_everywhere(max_bytes_in_flight=1 << 31)
    target = counterweight_ray.local_target()  # in any task or actor: its own node's server
    counterweight_ray.stop(servers)

The server ends with its actor, also where Ray kills the actor: the kernel then sends it SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_NAMESPACE = "counterweight"
_PR_SET_PDEATHSIG = 1
_START_SECONDS = 60
_STOP_SECONDS = 10  # more than --drain_timeout + 2 s
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class _Server:
    """The process and its folder; Unix socket and shared memory serve the node's own user."""

    def __init__(self, program: str, flags: dict[str, object]) -> None:
        self._folder = tempfile.mkdtemp(prefix="counterweight-")
        self.socket = f"unix:{self._folder}/server.sock"
        arguments = {
            "listen": self.socket,
            "shared_memory_socket": f"{self._folder}/memory.sock",
            "metrics_listen": "127.0.0.1:0",
            "drain_delay": 0,
            "drain_timeout": 5,
            # Ray prints each line in the driver's output; "info" has one for each request.
            "log_level": "warning",
            **flags,
        }
        # The thread that starts the process has to live as long as it: Ray runs __init__ and the
        # methods of an actor in its main thread.
        self._process = subprocess.Popen(
            [program, *(f"--{name}={value}" for name, value in arguments.items())],
            preexec_fn=_end_with_parent,
        )
        try:
            self._wait(program)
        except BaseException:
            self.stop()
            raise

    def _wait(self, program: str) -> None:
        probe = [program, f"--probe={self.socket}", "--probe_timeout=1"]
        for _ in range(_START_SECONDS * 10):
            if self._process.poll() is not None:
                code = self._process.returncode
                raise RuntimeError(f"{program} ended with {code}; the actor's log says why")
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError(f"{program} did not answer in {_START_SECONDS} s")

    def target(self) -> str:
        """Returns what `Client` takes, after a look at the process."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended with {self._process.returncode}")
        return self.socket

    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Ends the server, after its calls."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def start_everywhere(
    program: str | os.PathLike[str] = "counterweight-server", **flags: object
) -> list[ray.actor.ActorHandle]:
    """Starts a server on each live node, or finds the node's server of an earlier call.

    Args:
        program: The server, a path or a name on each node's PATH.
        **flags: Flags of the server by their names.

    Returns:
        The actors, which keep their servers until `stop`, also after the job that started them.

    Raises:
        ray.exceptions.RayActorError: A server did not start; the others that this call started
            are ended.
        RuntimeError: A server of an earlier call has ended; `stop` removes its actor.
    """
    found = str(program) if pathlib.Path(program).name == str(program) else os.path.abspath(program)
    listed = ray.util.list_named_actors(all_namespaces=True)
    earlier = {actor["name"] for actor in listed if actor["namespace"] == _NAMESPACE}
    actors = {
        node["NodeID"]: ray.remote(_Server)
        .options(
            name=node["NodeID"],
            namespace=_NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote(found, flags)
        for node in ray.nodes()
        if node["Alive"]
    }
    try:
        ray.get([actor.target.remote() for actor in actors.values()])
    except BaseException:
        # Servers of earlier calls go on: trainers use them.
        for node, actor in actors.items():
            if node not in earlier:
                ray.kill(actor)
        raise
    return list(actors.values())


def local_target() -> str:
    """Returns the target of the server on this process's own node.

    Raises:
        ValueError: `start_everywhere` has started none here.
    """
    actor = ray.get_actor(ray.get_runtime_context().get_node_id(), namespace=_NAMESPACE)
    target: str = ray.get(actor.target.remote())
    return target


def stop(servers: list[ray.actor.ActorHandle]) -> None:
    """Ends the servers after their calls, and the actors."""
    ray.get([server.stop.remote() for server in servers])
    for server in servers:
        ray.kill(server)
