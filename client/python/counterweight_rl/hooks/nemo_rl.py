"""NeMo-RL: the policy loss by the service, in a copy of its ``examples/run_grpo.py``.

    (policy, ..., loss_fn, logger, ...) = setup(config, tokenizer, dataset, val_dataset)
    loss_fn = counterweight_rl.hooks.nemo_rl.PolicyLoss(loss_fn, {"preset": "token_tis"})

NeMo-RL has no configuration that names a loss; its trainers take an object with the members of its
``LossFunction`` and send it to their workers. This one wraps the ``ClippedPGLossFn`` that ``setup``
makes: the service computes the surrogate with weights and rules, divided by the global counts.
The KL penalty, the NLL of positive examples and the metrics stay NeMo-RL's own.
"""

from __future__ import annotations

import copy
import os
from types import SimpleNamespace
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.config import CorrectionConfig, GlobalCounts, Method, Preset
from counterweight_rl.hooks import _arguments, _nemo_rl_config
from counterweight_rl.hooks._method import read_method, with_loss
from counterweight_rl.hooks.slime import drift
from counterweight_rl.torch import attach, outputs_for

__all__ = ["PolicyLoss"]

# NeMo-RL adds metrics up over micro-batches, so each is this batch's share of the mean.
_DRIFT = ("kl", "k3")
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
                ``policy_loss`` the surrogate is that of ``loss_fn``. None:
                ``COUNTERWEIGHT_METHOD``, else NeMo-RL's own importance sampling.
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
        surrogate = _nemo_rl_config.surrogate_of(loss_fn)
        chosen = _chosen(method)
        if chosen is None:
            chosen = _nemo_rl_config.correction_of(loss_fn)
        self._method: Method = with_loss(
            chosen, surrogate, surrogate.aggregation, surrogate.denominator
        )
        zeros = torch.zeros(1, 2)
        self._ask(zeros, zeros, zeros, zeros, torch.ones(1, 2), (1, 2), metrics=False)
        names = getattr(loss_fn, "metric_normalizations", None)
        if names is not None:
            ours = {f"counterweight_{name}": names[_LIKE] for name in _DRIFT}
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
        old = next_token_logprobs.detach()
        if not self._loss_fn.force_on_policy_ratio:
            old = data["prev_logprobs"][:, 1:]
        result = self._ask(
            next_token_logprobs,
            old,
            data["generation_logprobs"][:, 1:],
            data["advantages"][:, 1:],
            mask,
            (int(sequences), int(tokens)),
        )
        # Without advantages its surrogate is 0, and its penalties and metrics are what they are.
        rest = copy.copy(data)
        rest["advantages"] = torch.zeros_like(data["advantages"])
        penalties, metrics = self._loss_fn(
            next_token_logprobs=next_token_logprobs,
            data=rest,
            global_valid_seqs=global_valid_seqs,
            global_valid_toks=global_valid_toks,
        )
        loss = attach(next_token_logprobs, result) + penalties
        metrics["loss"] = loss.item()
        share = float(mask.sum()) / max(float(tokens), 1.0)
        for name in _DRIFT:
            metrics[f"counterweight_{name}"] = drift(result, name) * share
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
        return _service.ask(
            self._method,
            current_log_probs=current,
            old_log_probs=old,
            rollout_log_probs=rollout,
            advantages=advantages,
            response_mask=mask,
            global_counts=GlobalCounts(num_sequences=counts[0], num_tokens=counts[1]),
            outputs=outputs_for(current),
            **options,
        )


def _chosen(given: Any) -> Method | None:
    if given is None:
        return _arguments.method_of(None)
    if isinstance(given, (Preset, CorrectionConfig)):
        return given
    return read_method("method", given)
