"""REINFORCE on a softmax over 16 tokens; the engine rounds logits and is four updates behind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(logits - np.log(np.exp(logits).sum()))


rng = np.random.default_rng(0)
reward = np.linspace(0.5, 1, 16)  # of each token
updates = [np.zeros(16)]  # logits after each
for _ in range(50):
    trainer, engine = log_softmax(updates[-1]), log_softmax(updates[-5:][0].round())
    tokens = rng.choice(16, p=np.exp(engine), size=(64, 32))
    weights = reward[tokens]
    # The gradient of the loss -mean(weights * trainer[tokens]).
    counts = np.bincount(tokens.ravel(), weights.ravel(), minlength=16)
    gradient = (counts.sum() * np.exp(trainer) - counts) / tokens.size
    updates.append(updates[-1] - 4 * gradient)
print(f"expected reward {(np.exp(log_softmax(updates[-1])) * reward).sum():.2f}")
