"""SkyRL: ``trainer.algorithm.policy_loss_type=counterweight_regular`` after an import.

    import counterweight_rl.hooks.skyrl  # in your entry point, before SkyRL's main

Importing it registers, in SkyRL's PolicyLossRegistry, ``counterweight_regular``, ``_dual_clip``,
``_gspo``, ``_sapo``, ``_cispo``, ``_rollout_is``, ``_dppo`` and ``_importance_sampling``: SkyRL's
losses with its ``off_policy_correction``, computed by the service. SkyRL brings them to its
workers. Not there: clip_cov and kl_cov, which depend on the size of the advantages. SkyRL's special
cases by a loss's name do not apply: no old log-probs for ``rollout_is`` and ``dppo``, and the check
of the fully asynchronous trainer.
"""

from __future__ import annotations

import functools

from counterweight_rl.compat import _peers, _service
from counterweight_rl.hooks._skyrl_losses import NAMES, policy_loss

PREFIX = "counterweight_"
"""Prefix of the registered losses."""

_PEER = "skyrl.backends.skyrl_train.utils.ppo_utils"


def install() -> None:
    """Registers the losses. Idempotent.

    Raises:
        ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
        CounterweightError: The server does not answer.
        ImportError: SkyRL is not installed.
    """
    _service.check()
    registry = _peers.load(_PEER).PolicyLossRegistry
    registered = set(registry.list_available())
    for name in NAMES:
        if PREFIX + name not in registered:
            registry.register(PREFIX + name, functools.partial(policy_loss, name))


install()
