"""ROLL's loss of its actors by the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.config import GlobalCounts
from counterweight_rl.dialect_blocks import to_mapping
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.torch import attach, outputs_for

# ActorPGWorker reads these of the configuration of actor_train, with these defaults.
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {},
    "ppo": {},
    "tis": {"tis_lower_bound": 0.0, "tis_upper_bound": 1.0},
    "cispo": {
        "cispo_epsilon_low": 0.1,
        "cispo_epsilon_high": 0.1,
        "cispo_use_unified_mask": False,
    },
    "kimi15": {"kimi15_tau": 0.1},
}
_COUNT = {
    "token-mean": ("num_tokens", "batch_num_tokens"),
    "seq-mean-token-sum": ("num_sequences", "global_valid_samples"),
    "seq-mean-token-mean": ("num_sequences", "global_valid_samples"),
}

# A class of ROLL or of the user, which has everything else.
_Worker: Any = object


class ActorLossMixin(_Worker):
    """Gives an ActorWorker or ActorPGWorker of ROLL's RLVR pipeline the service's loss."""

    def loss_func(
        self, data: Any, output_tensor: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Returns the loss of one micro-batch and ROLL's metrics; its ``train_step`` calls it.

        Args:
            data: ROLL's ``DataProto``.
            output_tensor: Logits of the policy being trained.

        Raises:
            InvalidRequestError: A setting of those in the documentation of
                ``counterweight_rl.compat.roll``; see also ``counterweight_rl.compat``.
        """
        batch = data.batch
        log_probs = self.strategy.op_compute_log_probs(
            logits=output_tensor,
            input_ids=batch["input_ids"],
            attention_mask=batch["response_mask"],
        )
        old = self.get_old_log_probs_with_cache(data, log_probs)
        loss = _policy_loss(self, data, log_probs, old.detach())
        with torch.no_grad(), _forward(self, log_probs.detach()):
            _, metrics = super().loss_func(data, output_tensor.detach())
        return loss, metrics


def _policy_loss(
    worker: Any, data: Any, log_probs: torch.Tensor, old: torch.Tensor
) -> torch.Tensor:
    batch = data.batch
    block, weights = _block(worker, batch)
    advantages, rollout = batch["advantages"], None
    if weights is not None:
        advantages = advantages * weights
    elif compares(block.get("train_infer_correction") or {}):
        given = batch.get("infer_logprobs", old)
        rollout = given if len(given) > 0 else old
    mask = batch["response_mask"][:, 1:]
    # Without the rows that the pipeline leaves out.
    mask = batch.get("final_response_mask", mask)
    has_penalty = block.get("use_kl_loss", False)
    result = _service.correct(
        "roll",
        block,
        release="",  # it runs from git
        current_log_probs=log_probs,
        old_log_probs=old,
        rollout_log_probs=None if rollout is None else rollout.detach(),
        ref_log_probs=batch["ref_log_probs"].detach() if has_penalty else None,
        advantages=advantages.detach(),
        response_mask=mask.bool(),
        global_counts=_counts(block.get("loss_agg_mode", "seq-mean-token-mean"), data.meta_info),
        outputs=outputs_for(log_probs),
        metrics=False,
        given_weights=weights,
        own_warning="Metrics of roll",
    )
    return attach(log_probs, result)


def _block(worker: Any, batch: Any) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Returns the dialect's block, and weights that the pipeline made."""
    config = worker.pipeline_config
    block = dict(to_mapping("roll", config))
    block.pop("actor_train", None)  # the worker knows its variant
    if hasattr(worker, "_get_or_cache_config"):
        variant = worker._get_or_cache_config("pg_variant", "vanilla")
        settings = _VARIANTS.get(variant, {})
        read = {name: worker._get_or_cache_config(name, one) for name, one in settings.items()}
        block |= {"pg_variant": variant, **read}
    if not block.pop("enable_old_logprobs_recompute", False):
        return block, None
    del block["train_infer_correction"]
    if not config.train_infer_correction.is_weight.enabled:
        return block, None
    if block.get("pg_variant") == "kimi15":
        # The weights multiply its square too, so the advantages cannot carry them.
        problem = "'kimi15' is not supported with weights of enable_old_logprobs_recompute"
        raise refuse([Violation("pg_variant", problem)])
    return block, batch["train_infer_is_weight"].detach()


def is_filter(one: Mapping[str, Any]) -> bool:
    """Returns whether a filter is enabled and has a bound."""
    has_bound = one.get("ratio_enabled", True) or one.get("diff_enabled", False)
    return bool(one.get("enabled", False) and has_bound)


def compares(correction: Mapping[str, Any]) -> bool:
    """Returns whether weights or a filter are enabled."""
    weight = correction.get("is_weight") or {}
    return bool(weight.get("enabled")) or any(map(is_filter, correction.get("filters") or []))


def _counts(mode: str, meta_info: Mapping[str, Any]) -> GlobalCounts | None:
    """Returns the count of all ranks that the loss is divided by; None: there is none."""
    if mode not in _COUNT:
        return None
    name, key = _COUNT[mode]
    of_masks = meta_info[key]
    count = int(of_masks.get("final_response_mask", of_masks["response_mask"]))
    if name == "num_tokens":
        return GlobalCounts(num_tokens=count)
    return GlobalCounts(num_sequences=count)


class _Forwarded:
    """A strategy with the log-probs of a forward pass that was made."""

    def __init__(self, strategy: Any, log_probs: torch.Tensor) -> None:
        self._strategy, self._log_probs = strategy, log_probs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def op_compute_log_probs(self, **_: Any) -> torch.Tensor:
        return self._log_probs


@contextmanager
def _forward(worker: Any, log_probs: torch.Tensor) -> Iterator[None]:
    strategy = worker.strategy
    worker.strategy = _Forwarded(strategy, log_probs)
    try:
        yield
    finally:
        worker.strategy = strategy
