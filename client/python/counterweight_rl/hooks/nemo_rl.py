"""NeMo-RL: the policy loss by the service, in a copy of its ``examples/run_grpo.py``.

    (policy, ..., loss_fn, logger, ...) = setup(config, tokenizer, dataset, val_dataset)
    loss_fn = counterweight_rl.hooks.nemo_rl.PolicyLoss(loss_fn, {"preset": "token_tis"})

NeMo-RL has no configuration that names a loss; its trainers take an object with the members of its
``LossFunction`` and send it to their workers. This one wraps the ``ClippedPGLossFn`` that ``setup``
makes: the service computes the surrogate with NeMo-RL's own importance sampling, by the dialect
"nemo_rl", or a method's loss, divided by the global counts. With a method without a loss it
computes weights and rules, and the surrogate stays NeMo-RL's own, as the KL penalty, the NLL of
positive examples and the metrics always do.
"""

from __future__ import annotations

import copy
import os
from types import SimpleNamespace
from typing import Any

import torch

from counterweight_rl.choices import LossAggregation, LossDenominator
from counterweight_rl.compat import _service
from counterweight_rl.config import CorrectionConfig, Dialect, GlobalCounts, Method, Preset
from counterweight_rl.hooks import _arguments, _drift
from counterweight_rl.hooks._method import WEIGHED, has_loss, read_method, with_loss
from counterweight_rl.torch import attach, outputs_for

__all__ = ["PolicyLoss"]

# Attributes of the wrapped loss that the service computes with; each is a field of the dialect.
_FIELDS = (
    *("disable_ppo_ratio", "force_on_policy_ratio", "use_cispo"),
    *("ratio_clip_min", "ratio_clip_max", "ratio_clip_c", "sequence_level_importance_ratios"),
    *("use_importance_sampling_correction", "truncated_importance_sampling_type"),
    *("truncated_importance_sampling_ratio", "truncated_importance_sampling_ratio_min"),
)
# A metric of NeMo-RL that is divided as ours are.
_LIKE = "gen_kl_error"


class PolicyLoss:
    """A ``LossFunction`` with a surrogate that the service computes."""

    def __init__(self, loss_fn: Any, method: Any = None, **settings: Any) -> None:
        """Wraps a loss of NeMo-RL, and requests the loss of two tokens.

        Args:
            loss_fn: NeMo-RL's ``ClippedPGLossFn``.
            method: A preset's name, a mapping or JSON, as in ``hooks/README.md``; or a Preset or
                CorrectionConfig. It replaces NeMo-RL's importance sampling; without a
                ``policy_loss`` the surrogate is that of ``loss_fn``, whose advantages it weighs.
                None: ``COUNTERWEIGHT_METHOD``, else NeMo-RL's own importance sampling.
            settings: Those of ``counterweight_rl.compat.use``: target, run, ...; here and in the
                workers.

        Raises:
            ValueError: A setting out of its range, or a method that the server refuses.
            CounterweightError: The server does not answer.
        """
        self._loss_fn = loss_fn
        self._settings = settings
        self._checked_in: int | None = None
        self._read_settings()
        chosen = _chosen(method)
        # Whether the service computes the surrogate, and not its weights alone.
        self._computes = chosen is None or has_loss(chosen)
        self._method: Method
        if chosen is None:
            self._method = Dialect("nemo_rl", _block(loss_fn))
        elif self._computes:
            self._method = with_loss(chosen, WEIGHED, _aggregation(loss_fn), LossDenominator.GLOBAL)
        else:
            self._method = with_loss(chosen, WEIGHED, LossAggregation.TOKEN_SUM)
        zeros = torch.zeros(1, 2)
        self._ask(zeros, zeros, zeros, zeros, torch.ones(1, 2), (1, 2), metrics=False)
        names = getattr(loss_fn, "metric_normalizations", None)
        if names is not None:
            ours = {f"counterweight_{name}": names[_LIKE] for name in _drift.NAMES}
            self.metric_normalizations = {**names, **ours}

    def __getattr__(self, name: str) -> Any:
        # loss_type, input_type and other attributes that trainers read. Unpickling reads private
        # names before there is a loss.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loss_fn, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked_in": None}

    def __call__(
        self,
        next_token_logprobs: torch.Tensor,
        data: Any,
        global_valid_seqs: torch.Tensor | None,
        global_valid_toks: torch.Tensor | None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Computes a micro-batch's loss; NeMo-RL calls it.

        Args:
            next_token_logprobs: [B, T - 1] nats, of the tokens from the second on.
            data: advantages, generation_logprobs, prev_logprobs and token_mask, each [B, T];
                sample_mask, [B].
            global_valid_seqs: Sequences of all ranks' micro-batches. None: of this one.
            global_valid_toks: The same of tokens.

        Returns:
            The loss, and NeMo-RL's metrics with ``counterweight_kl`` and ``counterweight_k3``.

        Raises:
            InvalidRequestError: See ``counterweight_rl.compat``.
        """
        self._read_settings()
        mask = data["token_mask"][:, 1:] * data["sample_mask"].unsqueeze(-1)
        sequences = data["sample_mask"].sum() if global_valid_seqs is None else global_valid_seqs
        tokens = mask.sum() if global_valid_toks is None else global_valid_toks
        advantages = data["advantages"][:, 1:]
        rollout = data["generation_logprobs"][:, 1:]
        old = next_token_logprobs.detach()
        if not self._loss_fn.force_on_policy_ratio:
            old = data["prev_logprobs"][:, 1:]
        result = self._ask(
            next_token_logprobs, old, rollout, advantages, mask, (int(sequences), int(tokens))
        )
        rest, others = copy.copy(data), self._loss_fn
        # Without advantages its surrogate is 0, and its penalties and metrics are what they are.
        weights = torch.zeros_like(advantages)
        if not self._computes:
            weights = result.keep_mask.to(advantages.dtype)
            if result.weights is not None:
                weights = weights * result.weights
            if next_token_logprobs.requires_grad:
                _service.weighed(result, mask, weights, mask)
            others = copy.copy(self._loss_fn)
            others.use_importance_sampling_correction = False
        weighed = (advantages * weights).masked_fill(weights == 0, 0.0)
        rest["advantages"] = torch.nn.functional.pad(weighed, (1, 0))
        loss, metrics = others(
            next_token_logprobs=next_token_logprobs,
            data=rest,
            global_valid_seqs=global_valid_seqs,
            global_valid_toks=global_valid_toks,
        )
        if self._computes:
            loss = attach(next_token_logprobs, result) + loss
        metrics["loss"] = loss.item()
        # NeMo-RL adds metrics up over micro-batches, so each is this batch's share of the mean.
        for name, values in _drift.of_tokens(old, rollout, mask).items():
            metrics[f"counterweight_{name}"] = values.sum().item() / max(float(tokens), 1.0)
        return loss, metrics

    def _read_settings(self) -> None:
        if self._checked_in != os.getpid():
            _arguments.apply(SimpleNamespace(**self._settings), prefix="")
            self._checked_in = os.getpid()

    def _ask(
        self,
        current: torch.Tensor,
        old: torch.Tensor,
        rollout: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        counts: tuple[int, int],
        **options: Any,
    ) -> Any:
        options["outputs"] = ("weights", "keep_mask", "loss")
        if self._computes:
            options["outputs"] = outputs_for(current)
            options["global_counts"] = GlobalCounts(num_sequences=counts[0], num_tokens=counts[1])
        is_dialect = isinstance(self._method, Dialect)
        reads_old = not is_dialect or not self._loss_fn.force_on_policy_ratio
        return _service.ask(
            self._method,
            current_log_probs=current,
            old_log_probs=old if reads_old else None,
            rollout_log_probs=rollout,
            advantages=advantages,
            response_mask=mask,
            own_warning="Metrics of nemo_rl",
            **options,
        )


def _block(loss_fn: Any) -> dict[str, Any]:
    """Returns the block of the surrogate; NeMo-RL's own code adds the penalties."""
    return {
        **{name: getattr(loss_fn, name) for name in _FIELDS},
        "token_level_loss": _aggregation(loss_fn) is LossAggregation.TOKEN_MEAN,
        "reference_policy_kl_penalty": 0.0,
    }


def _aggregation(loss_fn: Any) -> LossAggregation:
    by_token = loss_fn.loss_type.value == "token_level"
    return LossAggregation.TOKEN_MEAN if by_token else LossAggregation.SEQ_MEAN_TOKEN_MEAN


def _chosen(given: Any) -> Method | None:
    if given is None:
        return _arguments.method_of(None)
    if isinstance(given, (Preset, CorrectionConfig)):
        return given
    return read_method("method", given)
