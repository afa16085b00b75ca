"""OpenRLHF's ``openrlhf.models.PolicyLoss``.

    # from openrlhf.models import PolicyLoss
    from counterweight.compat.openrlhf import PolicyLoss

As of OpenRLHF/OpenRLHF @3c3be623. Numbers and quirks are those of the dialect ``openrlhf``;
server/dialects/README.md lists them. The other names of ``openrlhf.models`` (``Actor``,
``aggregate_loss``, ...) are OpenRLHF's own, imported from there when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from counterweight.compat import _config, _peers, _service
from counterweight.errors import Violation, refuse

__getattr__ = _peers.getattr_from(
    __name__,
    {
        "openrlhf.models": (
            "Actor",
            "DPOLoss",
            "GPTLMLoss",
            "LogExpLoss",
            "PairWiseLoss",
            "SFTLoss",
            "ValueLoss",
            "aggregate_loss",
            "get_llm_for_sequence_regression",
        )
    },
)

CORRECTION_TYPES = ("tis", "icepop", "seq-mask-tis", "reinforce_pro")


class PolicyLoss(torch.nn.Module):
    """PPO or GSPO policy loss with OpenRLHF's corrections of the sampling policy."""

    def __init__(
        self,
        clip_eps_low: float = 0.2,
        clip_eps_high: float = 0.2,
        dual_clip: float | None = None,
        token_level_loss: bool = True,
        policy_loss_type: str = "ppo",
        enable_vllm_is_correction: bool = False,
        vllm_is_truncated_threshold: Sequence[float] | None = None,
        vllm_is_correction_type: str = "tis",
    ) -> None:
        """Keeps the settings.

        Args:
            clip_eps_low: 1 - clip_eps_low bounds the ratio from below.
            clip_eps_high: 1 + clip_eps_high bounds the ratio from above.
            dual_clip: Bound of the loss where the advantage is negative; > 1. None: none.
            token_level_loss: Average over tokens; False: over the rows' averages (gspo always).
            policy_loss_type: "ppo" or "gspo".
            enable_vllm_is_correction: Correct old/rollout (gspo: anchor at rollout).
            vllm_is_truncated_threshold: [low, high], ratios; needed with the correction.
            vllm_is_correction_type: "tis", "icepop", "seq-mask-tis" or "reinforce_pro".

        Raises:
            InvalidRequestError: What OpenRLHF checks here too; the service checks the rest, in the
                first forward.
        """
        super().__init__()
        violations = []
        if dual_clip is not None and not dual_clip > 1:
            violations.append(Violation("dual_clip", f"must be > 1.0; got {dual_clip}"))
        if vllm_is_correction_type not in CORRECTION_TYPES:
            choices = ", ".join(CORRECTION_TYPES)
            violations.append(
                Violation(
                    "vllm_is_correction_type",
                    f"must be one of {choices}; got {vllm_is_correction_type!r}",
                )
            )
        if violations:
            raise refuse(violations)
        self.clip_eps_low = clip_eps_low
        self.clip_eps_high = clip_eps_high
        self.dual_clip = dual_clip
        self.token_level_loss = token_level_loss
        self.policy_loss_type = policy_loss_type
        self.enable_vllm_is_correction = enable_vllm_is_correction
        self.vllm_is_truncated_threshold = vllm_is_truncated_threshold
        self.vllm_is_correction_type = vllm_is_correction_type

    def forward(
        self,
        log_probs: torch.Tensor,
        old_log_probs: torch.Tensor,
        advantages: torch.Tensor,
        action_mask: torch.Tensor | None = None,
        rollout_log_probs: torch.Tensor | None = None,
        dp_size: int = 1,
        batch_num_tokens: float | None = None,
        global_batch_size: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The loss and its metrics.

        Args:
            log_probs: [B, T] nats; the policy being trained, which gets the gradient.
            old_log_probs: [B, T] nats.
            advantages: [B, T].
            action_mask: [B, T], each 0 or 1. None: every token counts.
            rollout_log_probs: [B, T] nats, of the policy that sampled; for the correction.
            dp_size: The loss is multiplied by it where a global count is given.
            batch_num_tokens: Tokens of the global batch, the divisor at token level.
            global_batch_size: Rows of the global batch, the divisor at sample level.

        Returns:
            (loss, clip_ratio, ppo_kl, vllm_kl), scalars on log_probs' device. The loss can be
            differentiated by log_probs; vllm_kl is None without ppo and a correction.

        Raises:
            InvalidRequestError: As the package says.
        """
        if action_mask is None:
            action_mask = torch.ones_like(log_probs, dtype=torch.bool)
        loss, metrics = _service.policy_loss(
            "openrlhf",
            self._block(dp_size, batch_num_tokens, global_batch_size),
            current_log_probs=log_probs,
            old_log_probs=old_log_probs,
            advantages=advantages,
            response_mask=action_mask,
            rollout_log_probs=rollout_log_probs,
        )

        def scalar(name: str) -> torch.Tensor:
            return torch.tensor(metrics[name], dtype=torch.float32, device=log_probs.device)

        vllm_kl = scalar("vllm_kl") if "vllm_kl" in metrics else None
        return loss, scalar("ppo_clip_ratio"), scalar("ppo_kl"), vllm_kl

    def _block(
        self, dp_size: int, batch_num_tokens: float | None, global_batch_size: float | None
    ) -> dict[str, Any]:
        block: dict[str, Any] = {
            "eps_clip_low_high": [self.clip_eps_low, self.clip_eps_high],
            "dual_clip": self.dual_clip,
            "token_level_loss": self.token_level_loss,
            "policy_loss_type": self.policy_loss_type,
            "enable_vllm_is_correction": self.enable_vllm_is_correction,
            "vllm_is_correction_type": self.vllm_is_correction_type,
            "dp_size": dp_size,
        }
        optional = {
            "batch_num_tokens": batch_num_tokens,
            "global_batch_size": global_batch_size,
        }
        block.update((name, value) for name, value in optional.items() if value is not None)
        if self.enable_vllm_is_correction:
            # None too, which is an error then and not the default of OpenRLHF's command line.
            block["vllm_is_truncated_threshold"] = self.vllm_is_truncated_threshold
        return _config.to_block(block)
