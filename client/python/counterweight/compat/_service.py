"""The client that the functions of this package ask."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterweight.client import Client
from counterweight.config import Dialect

if TYPE_CHECKING:
    import torch

    from counterweight.result import Result

TARGET_VARIABLE = "COUNTERWEIGHT_TARGET"
DEFAULT_TARGET = "localhost:50051"

_lock = threading.Lock()
_chosen: Client | None = None
_run: str | None = None
# Made on demand; with its process, because a gRPC channel does not survive fork().
_default: tuple[int, Client] | None = None


def use(client: Client | None, *, run: str | None = None) -> None:
    """Sets the client that ``counterweight.compat`` asks, for the whole process.

    Args:
        client: The client; the caller closes it. None: the one of ``COUNTERWEIGHT_TARGET`` again.
        run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
    """
    global _chosen, _run
    with _lock:
        _chosen, _run = client, run


def client() -> Client:
    """The client that ``counterweight.compat`` asks."""
    global _default
    with _lock:
        if _chosen is not None:
            return _chosen
        if _default is None or _default[0] != os.getpid():
            _default = os.getpid(), Client(os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET))
        return _default[1]


def correct(system: str, block: Mapping[str, Any], **arguments: Any) -> Result[torch.Tensor]:
    """``Client.correct`` with a dialect; the server's warnings become Python's."""
    result: Result[torch.Tensor] = client().correct(
        method=Dialect(system, block), run=_run, **arguments
    )
    for sentence in result.warnings:
        # The caller of the function that called this one.
        warnings.warn(sentence, stacklevel=3)
    return result


def policy_loss(
    system: str, block: Mapping[str, Any], *, current_log_probs: torch.Tensor, **arguments: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    """A dialect's policy loss as a node of autograd, and its metrics."""
    from counterweight.torch import attach, outputs_for

    result = correct(
        system,
        block,
        current_log_probs=current_log_probs,
        outputs=outputs_for(current_log_probs),
        **arguments,
    )
    return attach(current_log_probs, result), result.metrics


def metrics_of(metrics: dict[str, float], *prefixes: str) -> dict[str, float]:
    """Those whose names begin so."""
    return {name: value for name, value in metrics.items() if name.startswith(prefixes)}
