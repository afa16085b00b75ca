"""Settings of a hook that receives parsed arguments, ``args.counterweight_*``."""

from __future__ import annotations

import os
from typing import Any

from counterweight_rl import compat
from counterweight_rl.compat import _service
from counterweight_rl.config import Method
from counterweight_rl.hooks._method import read_method
from counterweight_rl.suggestions import did_you_mean

PREFIX = "counterweight_"
METHOD_VARIABLE = "COUNTERWEIGHT_METHOD"

_OF_COMPAT = (
    *("target", "run", "timeout", "retry_seconds"),
    *("non_finite", "on_unavailable", "token_file", "report_steps"),
)
_METHOD = "method"


def method_of(args: Any, prefix: str = PREFIX) -> Method | None:
    """Returns ``args.counterweight_method``, else the variable's method, else None.

    Raises:
        ValueError: It is no method; the sentence begins with the name of argument or variable.
    """
    name = prefix + _METHOD
    value = getattr(args, name, None)
    if value is not None:
        return read_method(name, value)
    value = os.environ.get(METHOD_VARIABLE) or None
    return None if value is None else read_method(METHOD_VARIABLE, value)


def apply(args: Any, prefix: str = PREFIX) -> None:
    """Passes ``args.counterweight_target`` and the like to ``compat.use``; none: changes nothing.

    Args:
        args: The trainer's arguments.
        prefix: Beginning of the names that are ours. Empty: all of them.

    Raises:
        ValueError: An unknown name, or a value out of its range.
    """
    given = {
        name.removeprefix(prefix): value
        for name, value in vars(args).items()
        if name.startswith(prefix) and value is not None
    }
    given.pop(_METHOD, None)
    for name in given:
        if name not in _OF_COMPAT:
            known = [prefix + one for one in (*_OF_COMPAT, _METHOD)]
            advice = did_you_mean(prefix + name, known)
            raise ValueError(f"{prefix}{name} is not a setting{advice}")
    if given:
        compat.use(**given)
    else:
        _service.check_settings()
