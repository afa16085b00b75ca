"""A small decoder-only transformer, its sampler with a cache, and its int4 copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import task
import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS = 48, 2, 4
_LONGEST = 80
_GROUP = 16

Cache = list[tuple[torch.Tensor, torch.Tensor]]
Arrays = dict[str, np.ndarray]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.inward = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.outward = nn.Linear(WIDTH, WIDTH, bias=False)
        self.between = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cache: Cache | None, layer: int) -> torch.Tensor:
        rows, length, _ = x.shape
        heads = self.inward(self.before(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if layer < len(cache):
                key = torch.cat([cache[layer][0], key], dim=2)
                value = torch.cat([cache[layer][1], value], dim=2)
                cache[layer] = key, value
            else:
                cache.append((key, value))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.outward(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.words = nn.Embedding(len(task.CHARACTERS), WIDTH)
        self.places = nn.Embedding(_LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(task.CHARACTERS), bias=False)
        for module in (self.words, self.places):
            nn.init.normal_(module.weight, std=1 / math.sqrt(WIDTH))

    def forward(self, tokens: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """Returns logits [B, T, words]; with a cache the tokens follow those that it has seen."""
        start = cache[0][0].shape[2] if cache else 0
        places = torch.arange(start, start + tokens.shape[1])
        x = self.words(tokens) + self.places(places)
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, layer)
        return self.head(self.last(x))


def log_probs(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the log-probs of tokens[:, 1:] in nats, [B, T - 1]."""
    logits = model(tokens[:, :-1]).log_softmax(dim=-1)
    return logits.gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)


def to_arrays(weights: Mapping[str, torch.Tensor]) -> Arrays:
    """Copies weights into arrays, which a queue sends as they are."""
    return {name: value.numpy().copy() for name, value in weights.items()}


def load(model: Model, weights: Arrays) -> None:
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def quantize(weights: Arrays, within: str = "blocks") -> Arrays:
    """Rounds the blocks' matrices to 4 bits, with one scale for some neighbours."""
    return {
        name: _int4(value) if name.startswith(within) and value.ndim == 2 else value
        for name, value in weights.items()
    }


def _int4(matrix: np.ndarray) -> np.ndarray:
    groups = matrix.reshape(matrix.shape[0], -1, _GROUP)
    scale = np.maximum(np.abs(groups).max(axis=2, keepdims=True), np.float32(1e-8)) / 7
    return (np.round(groups / scale) * scale).reshape(matrix.shape)


@dataclass
class Rollouts:
    """Prompts with answers, padded: tokens [B, T]; the others [B, T - 1], of tokens[:, 1:]."""

    tokens: torch.Tensor
    log_probs: torch.Tensor
    mask: torch.Tensor
    rewards: torch.Tensor
    version: int = 0

    def to_arrays(self) -> dict[str, Any]:
        """The fields for a queue; tensors in it would die with the process that made them."""
        fields = vars(self).items()
        return {
            name: value.numpy() if isinstance(value, torch.Tensor) else value
            for name, value in fields
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, Any]) -> Rollouts:
        return cls(
            **{
                name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for name, value in arrays.items()
            }
        )


@torch.no_grad()
def sample(model: Model, problems: list[list[int]], generator: torch.Generator) -> Rollouts:
    """Samples an answer to each problem at temperature 1, token by token."""
    prompts = [task.encode(task.prompt(terms)) for terms in problems]
    lengths = torch.tensor([len(one) for one in prompts])
    width = int(lengths.max()) + task.LONGEST_ANSWER
    tokens = torch.full((len(prompts), width), task.END)
    for row, one in zip(tokens, prompts, strict=True):
        row[: len(one)] = torch.tensor(one)
    sampled = torch.zeros(len(prompts), width - 1)
    mask = torch.zeros(len(prompts), width - 1, dtype=torch.bool)
    going = torch.ones(len(prompts), dtype=torch.bool)
    cache: Cache = []
    last = width - 1
    for place in range(width - 1):
        logs = model(tokens[:, place : place + 1], cache)[:, 0].log_softmax(dim=-1)
        words = torch.multinomial(logs.exp(), 1, generator=generator)
        answering = place + 1 >= lengths
        counts = answering & going & (place + 1 < lengths + task.LONGEST_ANSWER)
        sampled[:, place] = torch.where(counts, logs.gather(1, words)[:, 0], 0)
        tokens[:, place + 1] = torch.where(counts, words[:, 0], tokens[:, place + 1])
        mask[:, place] = counts
        going &= ~(counts & (words[:, 0] == task.END))
        if not (going & (place + 2 < lengths + task.LONGEST_ANSWER)).any():
            last = place + 1
            break
    tokens, sampled, mask = tokens[:, : last + 1], sampled[:, :last], mask[:, :last]
    answers = [row[1:][kept].tolist() for row, kept in zip(tokens, mask, strict=True)]
    rewards = [
        task.reward(terms, task.decode(answer))
        for terms, answer in zip(problems, answers, strict=True)
    ]
    return Rollouts(tokens, sampled, mask, torch.tensor(rewards))
