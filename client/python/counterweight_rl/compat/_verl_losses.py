"""The policy losses of ``verl.trainer.ppo.core_algos``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from counterweight_rl.compat import _config, _peers, _service
from counterweight_rl.dialect_fields import FIELDS
from counterweight_rl.errors import Violation, refuse

CORE_ALGOS = "verl.trainer.ppo.core_algos"
CORRECTION_METRICS = "rollout_corr/"
LOSS_METRICS = "actor/"

# Fields that the losses read, in the structure of verl's ActorConfig.
_ACTOR_FIELDS = (
    "clip_ratio",
    "clip_ratio_low",
    "clip_ratio_high",
    "clip_ratio_c",
    "tau_pos",
    "tau_neg",
    "loss_scale_factor",
)
_POLICY_LOSS_FIELDS = (
    "clip_cov_ratio",
    "clip_cov_lb",
    "clip_cov_ub",
    "kl_cov_ratio",
    "ppo_kl_coef",
    "dro_beta",
)
# Losses that require config.policy_loss.
_READ_POLICY_LOSS = frozenset({"clip_cov", "kl_cov", "dro"})
# Losses for which weighting the advantages equals weighting the loss.
_PROPORTIONAL_TO_ADVANTAGES = frozenset(
    {"vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "cispo", "reinforce"}
)


class PolicyLossFn(Protocol):
    """Type of the result of ``get_policy_loss_fn``."""

    def __call__(
        self,
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns a policy loss and its metrics.

        Args:
            old_log_prob: [B, T] nats; the anchor of the ratio.
            log_prob: [B, T] nats; the policy being trained, which gets the gradient.
            advantages: [B, T].
            response_mask: [B, T]; after rejection, if any.
            loss_agg_mode: verl's name of the aggregation.
            config: An ActorConfig, or anything with its fields, ``global_batch_info`` among them;
                an absent field means verl's default.
            rollout_is_weights: [B, T], from ``compute_rollout_correction_and_rejection_mask``;
                constants. The advantages are multiplied by them, so a token of weight 0 counts as
                not clipped in pg_clipfrac. Losses that are not proportional to the advantages
                (clip_cov, kl_cov, geo_mean, dro) refuse them.

        Returns:
            The loss, a scalar that can be differentiated by log_prob; ``actor/*`` metrics, and
            those of the correction (``rollout_corr/*``) in bypass mode.

        Raises:
            InvalidRequestError: A wrong setting, or weights that this loss cannot take.
            AssertionError: As in verl: there is no config, or it is an AlgoConfig, or has no
                policy_loss although the loss is clip_cov, kl_cov or dro.
        """


def compute_policy_loss_reinforce(
    rollout_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "seq-mean-token-sum",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Computes REINFORCE against the rollout policy; see ``PolicyLossFn`` for arguments.

    Only the metric ``actor/ppo_kl`` uses ``rollout_log_prob``.
    """
    _check("reinforce", config)
    loss, metrics = _service.policy_loss(
        "verl",
        {"bypass_mode": True, "policy_loss": _loss_block("reinforce", loss_agg_mode, config)},
        rollout_log_probs=rollout_log_prob,
        current_log_probs=log_prob,
        advantages=_weighted("reinforce", advantages, rollout_is_weights),
        response_mask=response_mask,
        given_weights=rollout_is_weights,
    )
    return loss, _service.metrics_of(metrics, LOSS_METRICS)


def compute_policy_loss_bypass_mode(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Corrects current/rollout and computes the loss; arguments as in ``PolicyLossFn``.

    As in verl, ``old_log_prob`` is the rollout policy's, ``config.policy_loss.rollout_correction``
    configures the correction and loss_type, and ``rollout_is_weights`` is not read.

    Raises:
        ValueError: There is no rollout_correction.
    """
    _check("bypass_mode", config)
    correction = _config.get(_config.get(config, "policy_loss"), "rollout_correction")
    if correction is None:
        raise ValueError("loss_mode bypass_mode needs config.policy_loss.rollout_correction")
    loss, metrics = _service.policy_loss(
        "verl",
        {
            **_config.to_block(correction, FIELDS["verl"]["algorithm"]["rollout_correction"]),
            "bypass_mode": True,
            "policy_loss": _loss_block("bypass_mode", loss_agg_mode, config),
        },
        rollout_log_probs=old_log_prob,
        current_log_probs=log_prob,
        advantages=advantages,
        response_mask=response_mask,
    )
    return loss, _service.metrics_of(metrics, LOSS_METRICS, CORRECTION_METRICS)


def get_policy_loss_fn(name: str) -> PolicyLossFn:
    """Returns the policy loss of that name: this module's, else verl's.

    The latter are losses registered by verl's ``register_policy_loss``, and those of a newer verl;
    they compute without the service.

    Raises:
        ValueError: No such loss exists.
    """
    if name in POLICY_LOSS_REGISTRY:
        return POLICY_LOSS_REGISTRY[name]
    registered = _registered_with_verl()
    if name in registered:
        return registered[name]
    modes = list(dict.fromkeys([*POLICY_LOSS_REGISTRY, *registered]))
    raise ValueError(f"Unsupported loss mode: {name}. Supported modes are: {modes}")


def _registered_with_verl() -> Mapping[str, PolicyLossFn]:
    try:
        registry: Mapping[str, PolicyLossFn] = _peers.load(CORE_ALGOS).POLICY_LOSS_REGISTRY
    except _peers.NotInstalledError:
        return {}
    return registry


def _policy_loss_fn(loss_mode: str) -> PolicyLossFn:
    def compute_policy_loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        _check(loss_mode, config)
        loss, metrics = _service.policy_loss(
            "verl",
            {"policy_loss": _loss_block(loss_mode, loss_agg_mode, config)},
            old_log_probs=old_log_prob,
            current_log_probs=log_prob,
            advantages=_weighted(loss_mode, advantages, rollout_is_weights),
            response_mask=response_mask,
            given_weights=rollout_is_weights,
        )
        return loss, _service.metrics_of(metrics, LOSS_METRICS)

    compute_policy_loss.__name__ = f"compute_policy_loss_{loss_mode}"
    compute_policy_loss.__qualname__ = compute_policy_loss.__name__
    compute_policy_loss.__doc__ = f"verl's {loss_mode}; arguments and answer: ``PolicyLossFn``."
    return compute_policy_loss


compute_policy_loss_vanilla = _policy_loss_fn("vanilla")
compute_policy_loss_dppo_tv = _policy_loss_fn("dppo_tv")
compute_policy_loss_dppo_kl = _policy_loss_fn("dppo_kl")
compute_policy_loss_gspo = _policy_loss_fn("gspo")
compute_policy_loss_sapo = _policy_loss_fn("sapo")
compute_policy_loss_gpg = _policy_loss_fn("gpg")
compute_policy_loss_clip_cov = _policy_loss_fn("clip_cov")
compute_policy_loss_kl_cov = _policy_loss_fn("kl_cov")
compute_policy_loss_geo_mean = _policy_loss_fn("geo_mean")
compute_policy_loss_dro = _policy_loss_fn("dro")
compute_policy_loss_cispo = _policy_loss_fn("cispo")

POLICY_LOSS_REGISTRY: dict[str, PolicyLossFn] = {
    "vanilla": compute_policy_loss_vanilla,
    "dppo_tv": compute_policy_loss_dppo_tv,
    "dppo_kl": compute_policy_loss_dppo_kl,
    "gspo": compute_policy_loss_gspo,
    "sapo": compute_policy_loss_sapo,
    "gpg": compute_policy_loss_gpg,
    "clip_cov": compute_policy_loss_clip_cov,
    "kl_cov": compute_policy_loss_kl_cov,
    "geo_mean": compute_policy_loss_geo_mean,
    "dro": compute_policy_loss_dro,
    "cispo": compute_policy_loss_cispo,
    "bypass_mode": compute_policy_loss_bypass_mode,
}


def _check(loss_mode: str, config: Any) -> None:
    """Makes verl's assertions."""
    if config is None:
        raise AssertionError(f"config must be an ActorConfig for {loss_mode}, not None")
    # A caller with an AlgoConfig has imported its module.
    algo_config = getattr(sys.modules.get("verl.trainer.config"), "AlgoConfig", ())
    if isinstance(config, algo_config):
        raise AssertionError(f"config must be an ActorConfig for {loss_mode}, not an AlgoConfig")
    if loss_mode in _READ_POLICY_LOSS and _config.get(config, "policy_loss") is None:
        raise AssertionError(f"config.policy_loss must not be None for {loss_mode}")


def _loss_block(loss_mode: str, loss_agg_mode: str, config: Any) -> dict[str, Any]:
    block = {
        "loss_mode": loss_mode,
        "loss_agg_mode": loss_agg_mode,
        **_config.given(config, _ACTOR_FIELDS),
        **_config.given(_config.get(config, "policy_loss"), _POLICY_LOSS_FIELDS),
    }
    counts = _config.to_block(_config.get(config, "global_batch_info") or {})
    # verl passes the divisor of seq-mean-token-sum-norm among the counts.
    if "loss_scale_factor" in counts:
        block["loss_scale_factor"] = counts.pop("loss_scale_factor")
    return {**block, "global_batch_info": counts}


def _weighted(
    loss_mode: str, advantages: torch.Tensor, weights: torch.Tensor | None
) -> torch.Tensor:
    if weights is None:
        return advantages
    if loss_mode not in _PROPORTIONAL_TO_ADVANTAGES:
        raise refuse(
            [
                Violation(
                    "rollout_is_weights",
                    f"cannot be given to {loss_mode}, which is not proportional to the advantages; "
                    'call counterweight_rl.torch.policy_loss with Dialect("verl", ...), a block '
                    "with rollout_is, and rollout_log_probs",
                )
            ]
        )
    return advantages * weights.detach()
