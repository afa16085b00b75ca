"""The policy that RL starts from: it imitates imperfect demonstrations, and solves half of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import model as models
import task
import torch

_ROWS = 64
_PEAK = 3e-3


def pretrain(
    updates: int, shown: Callable[[int], None], model: Any = None, log_probs: Any = models.log_probs
) -> Any:
    """Returns the model, a new one if none is given; ``log_probs`` is that of its tokens.

    Raises:
        ValueError: There are fewer than 20 updates; a tenth warms up.
    """
    if updates < 20:
        raise ValueError(f"start_updates is {updates}; the schedule needs 20 at least")
    model, source = model or models.Model(), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK, updates, pct_start=0.1)
    for update in range(updates):
        texts = [task.encode(task.demonstration(source)) for _ in range(_ROWS)]
        longest = max(map(len, texts))
        tokens = torch.tensor([text + [task.END] * (longest - len(text)) for text in texts])
        said = torch.tensor([[i < len(text) for i in range(1, longest)] for text in texts])
        loss = -log_probs(model, tokens)[said].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        shown(update + 1)
    return model
