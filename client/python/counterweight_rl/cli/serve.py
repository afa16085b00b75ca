"""The server as a child process, its lines made readable."""

from __future__ import annotations

import contextlib
import ctypes
import json
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from counterweight_rl.cli import display

# server/README.md promises these two lines of stdout.
_LISTENING = "counterweight-server listening on "
_METRICS = "metrics on "
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1
# Fields of a log line that others repeat or that fill the screen.
_OMITTED = ("time", "level", "event", "config")


class _Relay:
    """Passes signals on, also those that arrive before the child exists."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._early: list[int] = []
        for number in _FORWARDED:
            signal.signal(number, self._receive)

    def to(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def _receive(self, number: int, _frame: Any) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


def _end_with_parent() -> None:
    # A killed parent leaves no server behind.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def serve(program: pathlib.Path, flags: Sequence[str]) -> int:
    """Runs the server until it ends; returns its exit code, or 128 and the signal that ended it.

    Raises:
        OSError: It cannot be started.
    """
    out, err = display.console(), display.console(to_stderr=True)
    relay = _Relay()
    child = subprocess.Popen(
        [str(program), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # A terminal's Ctrl-C reaches the child once, through the relay.
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    relay.to(child)
    assert child.stdout is not None
    log = threading.Thread(target=_print_log, args=(err, child.stderr))
    log.start()
    for line in child.stdout:
        _print_line(out, line.rstrip("\n"))
    log.join()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _print_line(out: Console, line: str) -> None:
    if line.startswith(_LISTENING):
        address = line.removeprefix(_LISTENING)
        out.print(f"serving gRPC on {address}", style="bold", soft_wrap=True)
        out.print(f'  Python: counterweight_rl.Client("{address}")', soft_wrap=True)
    elif line.startswith(_METRICS):
        url = line.removeprefix(_METRICS)
        out.print(f"  metrics: {url}", soft_wrap=True)
        out.print(f"  page of the runs: {url.removesuffix('metrics')}", soft_wrap=True)
    else:
        out.print(line, soft_wrap=True)
    sys.stdout.flush()


def _print_log(err: Console, lines: Any) -> None:
    for line in lines:
        text, level = _readable(line.rstrip("\n"))
        style = {"warning": "yellow", "error": "red"}.get(level)
        err.print(text, style=style, soft_wrap=True)


def _readable(line: str) -> tuple[str, str]:
    """A line of the log for people, and its level; other lines as they are."""
    try:
        read = json.loads(line)
        head = f"{read['time'][11:19]} {read['event']}"
        level = str(read["level"])
    except (ValueError, KeyError, TypeError):
        return line, ""
    rest = [f"{name}={_value(value)}" for name, value in read.items() if name not in _OMITTED]
    return "  ".join([head if level == "info" else f"{head} ({level})", *rest]), level


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(str(each) for each in value.values() if each not in ("", [], {}))
    return str(value)
