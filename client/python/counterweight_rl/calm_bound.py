"""Bounds from a run's calm steps, as texts: ``upper="calm:0.999:2"``."""

from __future__ import annotations

from typing import Any

from counterweight_rl.errors import CounterweightError
from counterweight_rl.status import StatusCode

PREFIX = "calm:"


def read(path: str, value: str) -> tuple[float, float | None]:
    """Returns the quantile, and the bound until the run's calm level is known.

    Raises:
        ValueError: It is no such text.
    """
    quantile, _, until = value.removeprefix(PREFIX).partition(":")
    try:
        return float(quantile), float(until) if until else None
    except ValueError:
        raise ValueError(
            f'{path} must be a number, "calm:QUANTILE" or "calm:QUANTILE:UNTIL", such as '
            f'"calm:0.999:2"; got {value!r}'
        ) from None


def is_calm(value: object) -> bool:
    """Returns whether it is such a text."""
    return isinstance(value, str) and value.startswith(PREFIX)


def is_in(method: dict[str, Any]) -> bool:
    """Returns whether the message of a method has such a bound."""
    weight = method.get("config", {}).get("importance_weight", {})
    return bool(method.get("preset", {}).get("calm_quantiles") or "upper_calm_quantile" in weight)


def check_resolved(method: dict[str, Any], response: dict[str, Any]) -> None:
    """Checks that a server knew of the bound in the method that it was sent.

    Raises:
        CounterweightError: It did not, and has used another one.
    """
    if is_in(method) and not response.get("resolvedBounds"):
        raise CounterweightError(
            'method: the server is too old for bounds of calm steps ("calm:..."), which its '
            'server_info().features would have as "calm_bounds"; give a number',
            code=StatusCode.UNIMPLEMENTED,
            request_id=response.get("requestId"),
        )
