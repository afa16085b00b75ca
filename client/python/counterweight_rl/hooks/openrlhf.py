"""OpenRLHF: its PolicyLoss by the service, in every worker of a Ray job.

    ray job submit --runtime-env-json '{"worker_process_setup_hook":
        "counterweight_rl.hooks.openrlhf.install"}' -- python3 -m openrlhf.cli.train_ppo_ray ...

OpenRLHF has no setting for a loss, and Ray has one for workers. The hook puts
``counterweight_rl.compat.openrlhf.PolicyLoss`` in place of ``openrlhf.models.PolicyLoss`` before
the actor's trainer imports it; the command line's options and the logged numbers stay the same.
"""

from __future__ import annotations

from counterweight_rl.compat import _peers, _service
from counterweight_rl.compat.openrlhf import PolicyLoss


def install() -> None:
    """Replaces OpenRLHF's PolicyLoss in this process. Idempotent.

    Raises:
        ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
        CounterweightError: The server does not answer.
        ImportError: OpenRLHF is not installed.
    """
    _service.check()
    _peers.replace("openrlhf.models", "PolicyLoss", PolicyLoss)
