"""verl: ``actor_rollout_ref.model.external_lib=counterweight_rl.hooks.verl``.

verl imports that module in the driver and in every worker, and then

* ``algorithm.rollout_correction`` is computed by the service: the driver's
  ``compute_rollout_correction_and_add_to_batch`` and, with ``bypass_mode``, the loss of that name;
* ``actor.policy_loss.loss_mode`` also takes ``counterweight_vanilla``, ``counterweight_gspo``, ...:
  all twelve of verl's registry, computed by the service. verl's own names stay verl's;
* ``algorithm.adv_estimator`` also takes ``counterweight_grpo``, ``_grpo_without_std``, ``_rloo``
  and ``_reinforce_plus_plus_baseline``: rows without a token in ``response_mask``, which
  ``rollout_rs`` has rejected, do not vote, and a group of one row has the advantage 0.

Numbers, metrics and differences are those of ``counterweight_rl.compat.verl``.
"""

from __future__ import annotations

from counterweight_rl.compat import _peers, _service
from counterweight_rl.compat import verl as _ours
from counterweight_rl.compat._verl_advantages import ADV_ESTIMATORS
from counterweight_rl.compat._verl_losses import CORE_ALGOS

PREFIX = "counterweight_"
"""Prefix of the registered losses and advantage estimators."""

_HELPER = "verl.trainer.ppo.rollout_corr_helper"
_CORRECTION = "compute_rollout_correction_and_add_to_batch"
# verl sets this loss_mode by itself, so the loss has no second name to be chosen by.
_BYPASS = "bypass_mode"


def install() -> None:
    """Registers the losses and replaces the correction in this process. Idempotent.

    Raises:
        ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
        CounterweightError: The server does not answer.
        ImportError: verl is not installed.
    """
    _service.check()
    core_algos = _peers.load(CORE_ALGOS)
    register = core_algos.register_policy_loss
    for name, loss in _ours.POLICY_LOSS_REGISTRY.items():
        register(PREFIX + name)(loss)
    for name, estimator in ADV_ESTIMATORS.items():
        core_algos.register_adv_est(PREFIX + name)(estimator)
    register(_BYPASS)(_ours.POLICY_LOSS_REGISTRY[_BYPASS])
    _peers.replace(_HELPER, _CORRECTION, getattr(_ours, _CORRECTION))


install()
