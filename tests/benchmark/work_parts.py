"""The parts of works that torch_works.py and same_works.py share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from eager_torch import Metrics
from torch import Tensor

CLIP, DUAL_CLIP = 0.2, 3.0
SEQUENCE_CLIP = (3e-4, 4e-4)
# Bounds of reinforce_pro's running mean, nats.
PREFIX_BOUNDS = (math.log(0.5), math.log(5.0))

DECOUPLED = ("old", "rollout", "mask")
LOSS = ("current", "old", "advantages", "mask")
WEIGHTED_LOSS = ("current", "old", "rollout", "advantages", "mask")


class Answer(NamedTuple):
    keep: Tensor
    weights: Tensor | None = None
    loss: Tensor | None = None
    gradient: Tensor | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True)
class Work:
    method: str  # as kernels_bench names it
    # "same": by name and value those of the kernels; None: the work has no metrics.
    metrics: Literal["verl", "same"] | None
    inputs: tuple[str, ...]
    answer: Callable[..., Answer]


def with_gradient(
    loss_of: Callable[..., tuple[Tensor, Any]], *inputs: Tensor
) -> tuple[Tensor, Tensor, Any]:
    """The loss, its gradient by the first input, and the second value of loss_of.

    torch.func makes one graph of both passes. Autograd makes two, as in a trainer, and took up to
    30 % longer.
    """
    gradient, (loss, rest) = torch.func.grad_and_value(loss_of, has_aux=True)(*inputs)
    return loss, gradient, rest
