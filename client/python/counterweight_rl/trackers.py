"""Results in the trainer's own experiment tracker: Weights & Biases, TensorBoard or MLflow.

    trackers.log(result, step, wandb.init(project="rl"))
    trackers.log(result, step, SummaryWriter("runs/1"))
    trackers.log(result, step, mlflow)

None of them is imported here: the methods of a tracker identify it.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Protocol, SupportsIndex

from counterweight_rl.result import Result, Staleness

PREFIX = "counterweight/"


class WandbLike(Protocol):
    """A run of Weights & Biases, or the module ``wandb`` after ``wandb.init``."""

    def log(self, data: dict[str, Any], *, step: int) -> Any:
        """Adds the numbers of a step."""


class TensorBoardLike(Protocol):
    """A ``SummaryWriter``, torch's or tensorboardX's."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Adds one number of a step."""


class MlflowLike(Protocol):
    """The module ``mlflow``, which logs into its active run; Lightning's loggers are alike."""

    def log_metrics(self, metrics: dict[str, float], *, step: int) -> Any:
        """Adds the numbers of a step."""


Tracker = WandbLike | TensorBoardLike | MlflowLike


def scalars(result: Result[Any], *, prefix: str = PREFIX) -> dict[str, float]:
    """Returns the numbers that ``log`` writes, by name.

    Args:
        result: An answer of ``Client.correct``.
        prefix: In front of each name.

    Returns:
        ``result.metrics`` by name (kernels/README.md of the repository lists them, or the dialect's
        system), without numbers that are not finite; the loss, if any, as ``loss/total``, finite or
        not; ``non_finite_tokens``; for each rule ``rules/<name>/dropped_tokens`` and
        ``rules/<name>/dropped_sequences``; and where the call has versions of tokens
        ``staleness/mean``, ``staleness/max``, ``staleness/unknown_tokens`` and, for each range of
        staleness with tokens, ``staleness/<range>/tokens``, ``/kl`` and ``/k3``, the range as "0",
        "3-4" or "9-or-more".
    """
    found = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
    if result.loss is not None:
        # Beside "loss/policy": MLflow's files cannot have "loss" too, which would be its folder.
        found["loss/total"] = result.loss
    found["non_finite_tokens"] = float(result.non_finite_tokens)
    for rule in result.rules:
        found[f"rules/{rule.name}/dropped_tokens"] = float(rule.dropped_tokens)
        found[f"rules/{rule.name}/dropped_sequences"] = float(rule.dropped_sequences)
    if result.staleness is not None:
        found.update(_of_staleness(result.staleness))
    return {prefix + name: value for name, value in found.items()}


def _of_staleness(staleness: Staleness) -> dict[str, float]:
    found = {
        "staleness/max": float(staleness.max),
        "staleness/unknown_tokens": float(staleness.unknown_tokens),
    }
    if math.isfinite(staleness.mean):
        found["staleness/mean"] = staleness.mean
    for bucket in staleness.buckets:
        if bucket.tokens == 0:
            continue
        # Neither MLflow's names nor TensorBoard's have a "+".
        name = f"staleness/{bucket.label.replace('+', '-or-more')}"
        found[f"{name}/tokens"] = float(bucket.tokens)
        found[f"{name}/kl"] = bucket.kl
        found[f"{name}/k3"] = bucket.k3
    return {name: value for name, value in found.items() if math.isfinite(value)}


def log(
    result: Result[Any], step: SupportsIndex, tracker: Tracker, *, prefix: str = PREFIX
) -> dict[str, float]:
    """Writes a result's metrics into an experiment tracker.

    Args:
        result: An answer of ``Client.correct``. With ``metrics=False`` it has few numbers.
        step: The trainer's step. Weights & Biases wants it never to fall.
        tracker: A run of Weights & Biases or the module ``wandb``, a TensorBoard
            ``SummaryWriter``, or the module ``mlflow``.
        prefix: In front of each name; "" leaves a dialect's names as its system writes them.

    Returns:
        What was written: ``scalars(result, prefix=prefix)``.

    Raises:
        TypeError: ``tracker`` is none of these, or ``step`` is no integer.
    """
    number = operator.index(step)
    found = scalars(result, prefix=prefix)
    # Their types share nothing else, and each package may be absent.
    target: Any = tracker
    if callable(getattr(target, "log_metrics", None)):
        target.log_metrics(found, step=number)
    elif callable(getattr(target, "add_scalar", None)):
        for name, value in found.items():
            target.add_scalar(name, value, number)
    elif callable(getattr(target, "log", None)):
        target.log(found, step=number)
    else:
        raise TypeError(
            "tracker must be a run of Weights & Biases, a TensorBoard SummaryWriter or the module "
            f"mlflow, not {type(tracker).__name__}"
        )
    return found
