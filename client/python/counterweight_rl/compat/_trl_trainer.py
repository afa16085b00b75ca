"""TRL's GRPOTrainer with the service's loss."""

from __future__ import annotations

import inspect
import math
from importlib import metadata
from typing import Any

import torch

from counterweight_rl.compat import _releases, _service, _trl_loss
from counterweight_rl.errors import Violation, refuse

# The module of the loss that the mixin replaces.
_TRL_MODULE = "trl.trainer.grpo_trainer"
_OLDEST = (1, 10, 0)

# Metrics of one rank, which counts and comparisons combine over ranks.
_MEANS = (
    "kl",
    "clip_ratio/low_mean",
    "clip_ratio/high_mean",
    "clip_ratio/region_mean",
    "cispo_clip_ratio",
    "vespo/phi_seq_mean",
)
_MINIMUM, _MAXIMUM = "clip_ratio/low_min", "clip_ratio/high_max"

# A class of TRL or of the user, which has everything else.
_Trainer: Any = object


class GRPOMixin(_Trainer):
    """Gives a GRPOTrainer the loss of the service: value, gradient and metrics.

    ``class Trainer(GRPOMixin, GRPOTrainer): ...``; arguments and everything else are GRPOTrainer's.
    TRL keeps the model's forward pass, entropies and auxiliary losses. The settings of
    ``counterweight_rl.compat`` name the server, which must run when a trainer is created.

    Raises:
        InvalidRequestError: On creation of a trainer with a configuration that the service cannot
        ImportError: TRL is older than 1.10.
        TypeError: On definition of a class that would not get the service's loss, or would lose its
            own.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = cls.__mro__
        at = order.index(GRPOMixin)
        before = [c for c in order[:at] if c.__module__.partition(".")[0] == "trl"]
        if before:
            raise TypeError(f"{cls.__name__}: GRPOMixin must stand before {before[-1].__name__}")
        for base in order[at + 1 :]:
            if "_compute_loss" in vars(base) and base.__module__ != _TRL_MODULE:
                raise TypeError(
                    f"{cls.__name__}: {base.__name__} has a loss of its own, which GRPOMixin would "
                    "replace by GRPOTrainer's"
                )
            if base.__module__ == _TRL_MODULE:
                break

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_release()
        self._check_entropies_and_kernels()
        self._try_configuration()

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        per_token_logps, entropies, aux_loss = self._forward_of(model, inputs)
        advantages = inputs["advantages"]
        if advantages.dim() == 1:
            advantages = advantages.unsqueeze(1)
        entropy_mask = None
        if self.top_entropy_quantile < 1.0:
            quantile = 1 - self.top_entropy_quantile
            entropy_mask = self.get_high_entropy_mask(entropies, mask, quantile)
            # A token's policy loss is 0 if its advantage is; the KL penalty stays.
            advantages = advantages * entropy_mask

        training = self.model.training
        if training:
            _service.set_step(self.state.global_step)
        loss, metrics = _trl_loss.policy_loss(
            _trl_loss.block_of(self, inputs["num_items_in_batch"].item(), training=training),
            inputs,
            per_token_logps,
            advantages,
            mask,
        )
        log = self._metrics["train" if training else "eval"]
        self._log_loss_metrics(log, metrics, entropies, mask)
        steps = self.current_gradient_accumulation_steps if training else 1.0
        if self._entropy_bonus_enabled:
            effective = mask if entropy_mask is None else mask * entropy_mask
            entropy = (entropies * effective).sum() / effective.sum().clamp(min=1.0) / steps
            self._log_policy_loss(log, loss.detach(), steps)
            loss = loss - self.entropy_coef * entropy
            if training and self.accelerator.sync_gradients:
                log["entropy_coef"].append(self.entropy_coef)
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * aux_loss / steps
            log["aux_loss"].append(self.accelerator.gather_for_metrics(aux_loss).mean().item())
        return loss

    def _forward_of(self, model: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Returns log-probs and entropies of the completion, [B, T], by TRL's own forward pass."""
        forward = self._get_per_token_logps_and_entropies
        # The arguments for images differ between releases; they have the same names in inputs.
        images = {
            name: inputs[name] for name in inspect.signature(forward).parameters if name in inputs
        }
        result: tuple[torch.Tensor, torch.Tensor, Any] = forward(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].size(1),
            compute_entropy=True,
            compute_aux_loss=self.aux_loss_enabled,
            **images,
        )
        return result

    def _log_policy_loss(self, log: Any, loss: torch.Tensor, steps: float) -> None:
        # TRL logs the loss before it divides by the steps of an accumulation.
        if self.loss_type not in _trl_loss.DIVIDED_BY_ITEMS:
            loss = loss * steps
        log["policy_loss"].append(self.accelerator.gather(loss).nanmean().item())

    def _log_loss_metrics(
        self, log: Any, metrics: dict[str, float], entropies: torch.Tensor, mask: torch.Tensor
    ) -> None:
        """Appends the metrics of all ranks, by one reduction and one gathering of extrema."""
        rows, width = mask.shape
        counted = mask if width > 1 else torch.ones_like(mask)
        tokens = counted.sum().float()
        by_row = torch.full_like(tokens, rows)
        names = [name for name in _MEANS if name in metrics]
        is_by_row = {"vespo/phi_seq_mean"}
        if self.importance_sampling_level == "sequence":
            is_by_row.update(name for name in names if "clip_ratio" in name)
        counts = torch.stack([tokens, *(by_row if n in is_by_row else tokens for n in names)])
        means = counts.new_tensor([metrics[name] for name in names])
        entropy = (entropies.detach() * counted).sum().float()
        sums = torch.cat([entropy.view(1), means * counts[1:]])
        totals = self.accelerator.reduce(torch.stack([sums, counts]), reduction="sum")
        averages = (totals[0] / totals[1].clamp(min=1.0)).tolist()
        for name, value in zip(["entropy", *names], averages, strict=True):
            log[name].append(value)
        if _MINIMUM in metrics:
            extrema = counts.new_tensor([[metrics[_MINIMUM], metrics[_MAXIMUM]]])
            lows, highs = zip(*self.accelerator.gather(extrema).tolist(), strict=True)
            log[_MINIMUM].append(min(_numbers(lows), default=math.nan))
            log[_MAXIMUM].append(max(_numbers(highs), default=math.nan))

    def _check_entropies_and_kernels(self) -> None:
        violations = []
        if self.use_adaptive_entropy:
            violations.append(
                Violation("use_adaptive_entropy", "is not supported; set entropy_coef instead")
            )
        if self.top_entropy_quantile < 1.0 and self.loss_type == "vespo":
            violations.append(
                Violation(
                    "top_entropy_quantile",
                    "is not supported with loss_type 'vespo', which has one weight per row",
                )
            )
        if getattr(self, _trl_loss.LIGER, False):
            violations.append(
                Violation(
                    _trl_loss.LIGER,
                    "is not supported: this release of TRL computes Liger's loss with it",
                )
            )
        if violations:
            raise refuse(violations)

    def _try_configuration(self) -> None:
        """Requests the loss of two tokens, so that the server can refuse before the training."""
        block = _trl_loss.block_of(self, 2.0, training=False)
        tokens = torch.zeros(1, 2)
        names = ["old_per_token_logps", "ref_per_token_logps"]
        if block["use_vllm"]:
            names.append("sampling_per_token_logps")
        inputs = dict.fromkeys(names, tokens)
        advantages, mask = torch.ones(1, 1), torch.ones(1, 2)
        _trl_loss.policy_loss(block, inputs, tokens, advantages, mask, metrics=False)


def _check_release() -> None:
    if not _releases.is_since("trl", _OLDEST):
        oldest, release = ".".join(map(str, _OLDEST)), metadata.version("trl")
        raise ImportError(f"GRPOMixin has the loss of TRL {oldest} and newer, not of {release}")


def _numbers(values: tuple[float, ...]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
