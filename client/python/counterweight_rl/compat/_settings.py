"""Settings of ``counterweight_rl.compat``: the arguments of ``use``, else the environment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.client import Client
from counterweight_rl.local.target import read_target
from counterweight_rl.settings import read_seconds
from counterweight_rl.transport.fallback import OnUnavailable
from counterweight_rl.transport.retry import RetryPolicy
from counterweight_rl.transport.target import read_server

VARIABLE_PREFIX = "COUNTERWEIGHT_"
DEFAULT_TARGET = "localhost:50051"
DEFAULT_RETRY_SECONDS = 60.0
ANSWER_SECONDS = 60.0
"""Seconds of the default timeout beyond the retries."""

_RUN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Longest pause between attempts: a returned server is found within it.
_MAX_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """The checked settings that ``use`` documents.

    Attributes:
        over_ranks: False, True for the default group, or a process group.
    """

    target: str
    run: str | None
    timeout: float
    retry_seconds: float
    non_finite: NonFinitePolicy
    on_unavailable: OnUnavailable
    token_file: str | None
    publish: str | None
    report_steps: bool
    over_ranks: Any

    def connect(self) -> Client:
        """Returns a client with these settings."""
        policy = RetryPolicy(
            attempts=None,
            max_seconds=self.retry_seconds,
            max_pause=_MAX_PAUSE_SECONDS,
            interrupted=True,
        )
        return Client(
            self.target,
            timeout=self.timeout,
            retry=policy,
            on_unavailable=self.on_unavailable,
            token_file=self.token_file,
            publish=self.publish,
        )


def read(given: Mapping[str, Any]) -> Settings:
    """Reads the settings; None takes the environment variable, else the default.

    Raises:
        ValueError: A value out of its range; the message begins with its argument or variable.
        TypeError: An argument of a wrong type.
    """
    run_source, run = _find("run", given)
    if run is not None and not _RUN.fullmatch(_text(run_source, run)):
        raise ValueError(f"{run_source} must match {_RUN.pattern}; got {run!r}")
    target_source, target = _find("target", given)
    retry_source, retry = _find("retry_seconds", given)
    timeout_source, timeout = _find("timeout", given)
    token_source, token_file = _find("token_file", given)
    publish_source, publish = _find("publish", given)
    if publish is not None:
        read_server(_text(publish_source, publish), publish_source)
    if retry is not None:
        retry = _seconds(retry_source, retry, or_zero=True)
    if timeout is not None:
        timeout = _seconds(timeout_source, timeout)
    if retry is not None and timeout is not None and retry > timeout:
        raise ValueError(
            f"{retry_source} must be at most {timeout_source}, which includes it; "
            f"got {retry:g} and {timeout:g}"
        )
    if retry is None:
        retry = DEFAULT_RETRY_SECONDS if timeout is None else min(DEFAULT_RETRY_SECONDS, timeout)
    return Settings(
        target=DEFAULT_TARGET if target is None else _target(target_source, target),
        run=run,
        timeout=retry + ANSWER_SECONDS if timeout is None else timeout,
        retry_seconds=retry,
        non_finite=_non_finite(*_find("non_finite", given)),
        on_unavailable=_on_unavailable(*_find("on_unavailable", given)),
        token_file=None if token_file is None else _text(token_source, token_file),
        publish=publish,
        report_steps=_boolean(*_find("report_steps", given), default=True),
        over_ranks=_over_ranks(*_find("over_ranks", given)),
    )


def _find(name: str, given: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns the name for messages, and the value or None."""
    if given.get(name) is not None:
        return name, given[name]
    variable = VARIABLE_PREFIX + name.upper()
    # Deployments write "" for a variable that is not set.
    return variable, os.environ.get(variable) or None


def _text(source: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{source} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{source} must not be empty")
    return value


def _target(source: str, value: Any) -> str:
    target = _text(source, value)
    if read_target(target, source) is None:
        read_server(target, source)
    return target


def _seconds(source: str, value: Any, *, or_zero: bool = False) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{source} must be a number of seconds; got {value!r}") from None
    return read_seconds(source, value, or_zero=or_zero)


def _non_finite(source: str, value: Any) -> NonFinitePolicy:
    if value is None:
        return NonFinitePolicy.REJECT
    try:
        return NonFinitePolicy(_text(source, value).lower())
    except ValueError:
        choices = ", ".join(NonFinitePolicy)
        raise ValueError(f"{source} must be one of {choices}; got {str(value)!r}") from None


def _on_unavailable(source: str, value: Any) -> OnUnavailable:
    if value is None:
        return "raise"
    choices = get_args(OnUnavailable)
    text = _text(source, value).lower()
    if text not in choices:
        raise ValueError(f"{source} must be one of {', '.join(choices)}; got {str(value)!r}")
    return cast(OnUnavailable, text)


def _boolean(source: str, value: Any, *, default: bool) -> bool:
    if value is None or isinstance(value, bool):
        return default if value is None else value
    text = _text(source, value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{source} must be true or false; got {str(value)!r}")
    return text == "true"


def _over_ranks(source: str, value: Any) -> Any:
    """Returns False, True for the default group, or a process group."""
    if value is None or isinstance(value, (bool, str)):
        return _boolean(source, value, default=False)
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not isinstance(value, distributed.ProcessGroup):
        raise TypeError(
            f"{source} must be a bool or a process group of torch.distributed, not "
            f"{type(value).__name__}"
        )
    return value
