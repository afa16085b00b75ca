"""The training process: GRPO on the sampler's batches, its loss computed by Counterweight."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any

import model as models
import task
import torch
from sampler import prepare_process
from settings import Settings, methods

import counterweight_rl as cw
from counterweight_rl.torch import policy_loss_with_result

_EVALUATION_SEED = 77


def advantages(rewards: torch.Tensor, group: int) -> torch.Tensor:
    """Returns the rewards relative to the other answers to the prompt, [B] (GRPO)."""
    grouped = rewards.view(-1, group)
    spread = grouped.std(dim=1, keepdim=True) + 1e-6
    return ((grouped - grouped.mean(dim=1, keepdim=True)) / spread).flatten()


def evaluate(model: models.Model, settings: Settings) -> float:
    """Returns the share of the same new problems that the current float32 weights solve."""
    source = random.Random(_EVALUATION_SEED)
    problems = [task.numbers(source) for _ in range(settings.evaluation_prompts)]
    generator = torch.Generator().manual_seed(_EVALUATION_SEED)
    return models.sample(model, problems, generator).rewards.mean().item()


class Trainer:
    def __init__(
        self, model: models.Model, client: cw.Client, method: str, settings: Settings, seed: int
    ) -> None:
        self.model, self.client, self.settings = model, client, settings
        self.method = methods(settings)[method]
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99)
        )
        self.order = torch.Generator().manual_seed(seed)
        self.version = 0
        self.backends: Counter[str] = Counter()

    def step(self, rollouts: models.Rollouts) -> dict[str, Any]:
        """Learns from a batch; returns what the curves need."""
        group = self.settings.group
        with torch.no_grad():
            old = models.log_probs(self.model, rollouts.tokens)
        gains = advantages(rollouts.rewards, group)
        prompts = torch.randperm(len(gains) // group, generator=self.order)
        losses, k3, kept = [], [], []
        for part in prompts.chunk(self.settings.minibatches):
            rows = (part.unsqueeze(1) * group + torch.arange(group)).flatten()
            loss, result = policy_loss_with_result(
                self.client,
                current_log_probs=models.log_probs(self.model, rollouts.tokens[rows]),
                old_log_probs=old[rows],
                rollout_log_probs=rollouts.log_probs[rows],
                response_mask=rollouts.mask[rows],
                advantages=gains[rows],
                method=self.method,
                run="async-rl",
                policy_version=self.version,
                policy_versions=torch.full(rollouts.mask[rows].shape, rollouts.version),
            )
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.item())
            k3.append(result.metrics["k3"])
            kept.append(result.metrics["kept_token_fraction"])
            self.backends[result.backend] += 1
        self.version += 1
        return {
            "step": self.version,
            "sampled_by": rollouts.version,
            "losses": losses,
            "k3": sum(k3) / len(k3),
            "kept": sum(kept) / len(kept),
            "sampled_reward": rollouts.rewards.mean().item(),
        }

    def fingerprint(self) -> str:
        """Returns a hash of all weights."""
        found = hashlib.sha256()
        for value in self.model.state_dict().values():
            found.update(value.numpy().tobytes())
        return found.hexdigest()


def train(
    settings: Settings,
    start: models.Arrays,
    method: str,
    seed: int,
    target: str,
    weights: Any,
    batches: Any,
    told: Any,
) -> None:
    """Runs all steps, and puts the results of each into ``told``."""
    prepare_process()
    model = models.Model()
    models.load(model, start)
    # After one attempt the same numbers are computed here; each later call tries the server first.
    fall_back: dict[str, Any] = {} if target == "local:" else {"on_unavailable": "local"}
    with cw.Client(target, retry=False, **fall_back) as client:
        trainer = Trainer(model, client, method, settings, seed)
        told.put({"step": 0, "reward": evaluate(model, settings)})
        weights.put(models.to_arrays(model.state_dict()))
        for step in range(1, settings.steps + 1):
            found = trainer.step(models.Rollouts.of_arrays(batches.get(timeout=settings.patience)))
            weights.put(models.to_arrays(model.state_dict()))
            if step % settings.evaluate_every == 0:
                found["reward"] = evaluate(model, settings)
            told.put(found)
        told.put({"weights": trainer.fingerprint(), "backends": dict(trainer.backends)})
    # The sampler has no use for the last weights.
    weights.cancel_join_thread()
