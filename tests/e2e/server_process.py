"""The real server as a child process, on free ports."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LISTENING = "counterweight-server listening on "
METRICS = "metrics on "
# An ample bound for starting, stopping and waiting; only a hang reaches it.
DEADLINE_SECONDS = 150
# A slow machine must not look like a broken client. A later flag of a test replaces one of these.
PATIENCE = ("--stream_timeout=3600", "--unary_timeout=3600", "--max_queue_seconds=3600")


def binary() -> pathlib.Path:
    default = REPOSITORY / "build/release/counterweight-server"
    return pathlib.Path(os.environ.get("COUNTERWEIGHT_SERVER", default))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class ServerProcess:
    """A server; clients use `address`, Prometheus scrapes `metrics_url`.

    The server's log goes to a file, which is shown if the server does not start, or to the
    descriptor ``stderr``.
    """

    def __init__(
        self,
        *flags: str,
        listen: str = "127.0.0.1:0",
        program: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
        stderr: int | None = None,
        own_group: bool = False,
    ) -> None:
        """Starts ``program`` (None: the server), with ``environment`` added to ours.

        With ``own_group`` a terminal's Ctrl-C does not reach it.
        """
        # Closed by stop.
        self.log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                str(program or binary()),
                f"--listen={listen}",
                "--metrics_listen=127.0.0.1:0",
                "--drain_delay=0",
                *PATIENCE,
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=self.log if stderr is None else stderr,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=own_group,
        )
        self.address = ""
        self.metrics_url = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(LISTENING):
                self.address = line.removeprefix(LISTENING).strip()
            elif line.startswith(METRICS):
                self.metrics_url = line.removeprefix(METRICS).strip()
            if self.address and self.metrics_url:
                return
        self.log.seek(0)
        tail = self.log.read()[-2000:]
        self.stop()
        raise RuntimeError(f"the server did not start:\n{tail}")

    def freeze(self) -> None:
        """Stops the process until SIGCONT; returns when no thread of it runs anymore."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def log_lines(self) -> list[dict[str, Any]]:
        """Returns the log lines so far."""
        # Reading at the file's own position would move the server's.
        file = self.log.fileno()
        text = os.pread(file, os.fstat(file).st_size, 0)
        # The last line may still be written.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]

    def events(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Returns the log lines of the event, once there are ``count``.

        The server answers first and logs afterwards, on another thread, so that a test that has
        an answer cannot expect its line yet.
        """
        wait_until(lambda: len(self._events(name)) >= count)
        return self._events(name)

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.log_lines() if line["event"] == name]

    def scrape(self) -> str:
        """Returns the metrics page; over TLS any certificate will do."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with urllib.request.urlopen(
            self.metrics_url, timeout=DEADLINE_SECONDS, context=context
        ) as page:
            return str(page.read(), "utf-8")

    def metric(self, series: str) -> float:
        """Returns the value of a series, written as on the page: name{label="value"}."""
        for line in self.scrape().splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        raise KeyError(series)

    def count(self, series: str) -> float:
        """Returns a counter's value, 0 while the series is absent."""
        try:
            return self.metric(series)
        except KeyError:
            return 0.0

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(timeout=DEADLINE_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
