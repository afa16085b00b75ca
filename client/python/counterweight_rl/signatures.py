"""Methods of the clients take the arguments of the functions in ``calls``; here types learn that.

The argument list is written once, there. ``build`` makes the call; the method that is decorated
takes any keywords, hands them to ``build``, and waits in its client's own way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from counterweight_rl.calls import Call

P = ParamSpec("P")
T = TypeVar("T")
_Method = Callable[..., Any]


def answers(build: Callable[P, Call[T]]) -> Callable[[_Method], Callable[Concatenate[Any, P], T]]:
    """For a method that returns the answer."""
    return _described(build)


def answers_later(
    build: Callable[P, Call[T]],
) -> Callable[[_Method], Callable[Concatenate[Any, P], Future[T]]]:
    """For a method that returns a future of the answer."""
    return _described(build)


def answers_awaited(
    build: Callable[P, Call[T]],
) -> Callable[[_Method], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]:
    """For a coroutine method."""
    return _described(build)


def _described(build: Callable[..., Any]) -> Callable[[_Method], Any]:
    """Gives a method the signature of ``build``, and its documentation below its own."""

    def describe(method: Any) -> Any:
        signature = inspect.signature(build)
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        # What is called returns an answer, not a Call; which one, the documentation says.
        method.__signature__ = signature.replace(
            parameters=[this, *signature.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        documentation = (inspect.getdoc(method), inspect.getdoc(build))
        method.__doc__ = "\n\n".join(text for text in documentation if text) or None
        return method

    return describe
