"""The sampling process: answers from an int4 copy of weights that are some steps old."""

from __future__ import annotations

import os
import random
from typing import Any

import model as models
import task
import torch
from settings import Settings


def prepare_process() -> None:
    """One thread, and products with bits that do not depend on where an array lies in memory."""
    os.environ["MKL_CBWR"] = "AUTO,STRICT"
    torch.set_num_threads(1)


def sample_forever(settings: Settings, seed: int, weights: Any, batches: Any) -> None:
    """Makes the batch of each step with the weights of ``lag`` steps before it.

    It waits for no other weights, so it works up to ``lag`` batches ahead of the trainer, and runs
    can be repeated bit by bit although the two are not synchronized.
    """
    prepare_process()
    problems = random.Random(1000 + seed)
    generator = torch.Generator().manual_seed(seed)
    model = models.Model()
    version = -1
    for step in range(settings.steps):
        wanted = max(0, step - settings.lag)
        while version < wanted:
            version += 1
            received = weights.get(timeout=settings.patience)
        models.load(model, models.quantize(received))
        asked = [task.numbers(problems) for _ in range(settings.prompts)]
        repeated = [terms for terms in asked for _ in range(settings.group)]
        rollouts = models.sample(model, repeated, generator)
        rollouts.version = version
        batches.put(rollouts.to_arrays(), timeout=settings.patience)
