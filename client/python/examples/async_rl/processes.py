"""A run: the sampler, the trainer and, for some, the server, each a process."""

from __future__ import annotations

import contextlib
import multiprocessing
import pathlib
import queue
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import trainer
from sampler import sample_forever
from settings import Settings

from counterweight_rl.cli.programs import find_server

_LISTENING = "counterweight-server listening on "
_POLL_SECONDS = 0.5


class Server:
    """A server on a Unix socket, which can be killed and started again."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.target = f"unix:{folder}/counterweight.sock"
        self._program, self._log = program, folder / "server.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [self._program, f"--listen={self.target}", "--metrics_listen=127.0.0.1:0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_LISTENING):
                return
        raise RuntimeError(f"{self._program} did not start:\n{self._log.read_text()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A running server, which does not outlive the block."""
    program = find_server()
    with tempfile.TemporaryDirectory() as folder:
        found = Server(program, pathlib.Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.kill()


def run(
    settings: Settings,
    start: dict[str, Any],
    method: str,
    seed: int,
    target: str,
    heard: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Trains once, and returns the trainer's report; ``heard`` gets each piece at once.

    Raises:
        RuntimeError: A process failed; its own message is above.
    """
    context = multiprocessing.get_context("spawn")
    # Bounds that the lag implies; a full queue would mean that a process died.
    weights = context.Queue(settings.lag + 2)
    batches = context.Queue(settings.lag + 2)
    told = context.Queue()
    processes = [
        context.Process(
            target=sample_forever, args=(settings, seed, weights, batches), daemon=True
        ),
        context.Process(
            target=trainer.train,
            args=(settings, start, method, seed, target, weights, batches, told),
            daemon=True,
        ),
    ]
    records: list[dict[str, Any]] = []
    for process in processes:
        process.start()
    try:
        deadline = time.monotonic() + settings.patience
        while not records or "weights" not in records[-1]:
            try:
                records.append(told.get(timeout=_POLL_SECONDS))
            except queue.Empty:
                if any(process.exitcode for process in processes):
                    raise RuntimeError(f"{method}, seed {seed}: a process failed") from None
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{method}, seed {seed}: no step for too long") from None
                continue
            deadline = time.monotonic() + settings.patience
            heard(records[-1])
        for process in processes:
            process.join(settings.patience)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return records
