"""OpenRLHF's ``openrlhf.models.PolicyLoss``.

    # from openrlhf.models import PolicyLoss
    from counterweight_rl.compat.openrlhf import PolicyLoss

It follows OpenRLHF/OpenRLHF @3c3be623 (0.11.0) and 0.11.2. Numbers and quirks are those of the
dialect ``openrlhf``; server/engine/dialects/README.md lists them. The other names of
``openrlhf.models`` (``Actor``, ``aggregate_loss``, ...) are OpenRLHF's own, imported on first use.

It takes the arguments of 0.11.2 or of earlier releases, and returns five or four values
accordingly; ``vllm_is_correction_type`` may also be "reinforce_pro".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from counterweight_rl.compat import _config, _peers, _releases, _service
from counterweight_rl.errors import Violation, refuse

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

_BY_LEVEL = (0, 11, 2)
_LEVELS = ("off", "token", "seq")
_MODES = ("mask", "clip")
_GATINGS = ("ratio", "binary_kl", "tv")


class PolicyLoss(torch.nn.Module):
    """PPO or GSPO policy loss with OpenRLHF's corrections of the sampling policy.

    It takes the correction's arguments of OpenRLHF 0.11.2 (``is_correction_*``) or of earlier
    releases (``*vllm_is_*``), not both, and returns five or four values like the release with these
    arguments. Without any it follows the installed OpenRLHF, or the newest if none is installed.
    """

    def __init__(
        self,
        clip_eps_low: float = 0.2,
        clip_eps_high: float = 0.2,
        dual_clip: float | None = None,
        token_level_loss: bool = True,
        policy_loss_type: str = "ppo",
        is_correction_level: str | None = None,
        is_correction_mode: str | None = None,
        is_correction_gating: str | None = None,
        is_correction_threshold: Sequence[float] | None = None,
        *,
        enable_vllm_is_correction: bool | None = None,
        vllm_is_truncated_threshold: Sequence[float] | None = None,
        vllm_is_correction_type: str | None = None,
    ) -> None:
        """Stores the settings; None selects OpenRLHF's default.

        Args:
            clip_eps_low: 1 - clip_eps_low bounds the ratio from below.
            clip_eps_high: 1 + clip_eps_high bounds the ratio from above.
            dual_clip: Bound of the loss where the advantage is negative; > 1. None: none.
            token_level_loss: True averages over tokens, False over the rows' averages (always with
                gspo).
            policy_loss_type: "ppo" or "gspo".
            is_correction_level: "off", "token" or "seq": unit that a statistic outside the
                threshold masks. If on, gspo is anchored at rollout.
            is_correction_mode: "mask", or "clip" the token's ratio to the threshold.
            is_correction_gating: The statistic: "ratio" of old/rollout, or the divergence
                "binary_kl" (nats) or "tv" of the sampled token's probabilities.
            is_correction_threshold: [low, high]; default [0.5, 5.0].
            enable_vllm_is_correction: Correct old/rollout (gspo: anchor at rollout).
            vllm_is_truncated_threshold: [low, high], ratios; required by the correction.
            vllm_is_correction_type: "tis", "icepop", "seq-mask-tis" or "reinforce_pro".

        Raises:
            InvalidRequestError: OpenRLHF refuses the value or the combination here too; the service
                checks the rest in the first forward.
            TypeError: Arguments of both kinds.
        """
        super().__init__()
        by_level = {
            "is_correction_level": is_correction_level,
            "is_correction_mode": is_correction_mode,
            "is_correction_gating": is_correction_gating,
            "is_correction_threshold": is_correction_threshold,
        }
        by_type = {
            "enable_vllm_is_correction": enable_vllm_is_correction,
            "vllm_is_truncated_threshold": vllm_is_truncated_threshold,
            "vllm_is_correction_type": vllm_is_correction_type,
        }
        self._by_level = {name: value for name, value in by_level.items() if value is not None}
        by_type = {name: value for name, value in by_type.items() if value is not None}
        if self._by_level and by_type:
            raise TypeError(
                f"{', '.join(by_type)} are arguments before OpenRLHF 0.11.2, and "
                f"{', '.join(self._by_level)} are arguments since"
            )
        self._is_by_level = not by_type and (
            bool(self._by_level) or _releases.is_since("openrlhf", _BY_LEVEL)
        )
        violations = []
        if dual_clip is not None and not dual_clip > 1:
            violations.append(Violation("dual_clip", f"must be > 1.0; got {dual_clip}"))
        for name, value, choices in (
            ("is_correction_level", is_correction_level, _LEVELS),
            ("is_correction_mode", is_correction_mode, _MODES),
            ("is_correction_gating", is_correction_gating, _GATINGS),
            ("vllm_is_correction_type", vllm_is_correction_type, CORRECTION_TYPES),
        ):
            if value is not None and value not in choices:
                problem = f"must be one of {', '.join(choices)}; got {value!r}"
                violations.append(Violation(name, problem))
        self.is_correction_level = is_correction_level or _LEVELS[0]
        self.is_correction_mode = is_correction_mode or _MODES[0]
        self.is_correction_gating = is_correction_gating or _GATINGS[0]
        self.is_correction_threshold = is_correction_threshold or (0.5, 5.0)
        if self._is_by_level and not violations:
            violations += self._contradictions()
        if violations:
            raise refuse(violations)
        self.clip_eps_low = clip_eps_low
        self.clip_eps_high = clip_eps_high
        self.dual_clip = dual_clip
        self.token_level_loss = token_level_loss
        self.policy_loss_type = policy_loss_type
        self.enable_vllm_is_correction = bool(enable_vllm_is_correction)
        self.vllm_is_truncated_threshold = vllm_is_truncated_threshold
        self.vllm_is_correction_type = vllm_is_correction_type or "tis"

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
    ) -> tuple[torch.Tensor | None, ...]:
        """Returns the loss and its metrics.

        Args:
            log_probs: [B, T] nats; the policy being trained, which gets the gradient.
            old_log_probs: [B, T] nats.
            advantages: [B, T].
            action_mask: [B, T], each 0 or 1. None: every token counts.
            rollout_log_probs: [B, T] nats, of the policy that sampled; for the correction.
            dp_size: Factor of the loss if a global count is given.
            batch_num_tokens: Tokens of the global batch, the divisor at token level.
            global_batch_size: Rows of the global batch, the divisor at sample level.

        Returns:
            (loss, clip_ratio, ppo_kl, vllm_kl), and is_filter_ratio since OpenRLHF 0.11.2; scalars
            on log_probs' device. The loss is differentiable by log_probs; the last ones are
            None without ppo and a correction.

        Raises:
            InvalidRequestError: See ``counterweight_rl.compat``.
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
            release=self._release(),
        )

        def scalar(name: str) -> torch.Tensor | None:
            if name not in metrics:
                return None
            return torch.tensor(metrics[name], dtype=torch.float32, device=log_probs.device)

        names = ["ppo_clip_ratio", "ppo_kl", "vllm_kl"]
        if self._is_by_level:
            names.append("is_filter_ratio")
        return loss, *map(scalar, names)

    def _contradictions(self) -> list[Violation]:
        """Returns the combinations that OpenRLHF refuses before the first rollout."""
        level, gating = self.is_correction_level, self.is_correction_gating
        found = []
        if self.is_correction_mode == "clip" and (level == "seq" or gating != "ratio"):
            problem = "'clip' requires is_correction_level 'token' and is_correction_gating 'ratio'"
            found.append(Violation("is_correction_mode", problem))
        if gating != "ratio" and level != "off" and self.is_correction_threshold[0] > 0:
            problem = (
                f"is_correction_gating {gating!r} takes an upper bound only; give [0, high], not "
                f"{list(self.is_correction_threshold)}"
            )
            found.append(Violation("is_correction_threshold", problem))
        return found

    def _release(self) -> str:
        """Returns the installed release if it has these arguments, else the nearest that has."""
        if self._is_by_level == _releases.is_since("openrlhf", _BY_LEVEL):
            return _releases.release_of("openrlhf")
        return "0.11.2" if self._is_by_level else "0.11.1"

    def _block(
        self, dp_size: int, batch_num_tokens: float | None, global_batch_size: float | None
    ) -> dict[str, Any]:
        block: dict[str, Any] = {
            "eps_clip_low_high": [self.clip_eps_low, self.clip_eps_high],
            "dual_clip": self.dual_clip,
            "token_level_loss": self.token_level_loss,
            "policy_loss_type": self.policy_loss_type,
            "dp_size": dp_size,
        }
        optional = {
            "batch_num_tokens": batch_num_tokens,
            "global_batch_size": global_batch_size,
        }
        block.update((name, value) for name, value in optional.items() if value is not None)
        if self._is_by_level:
            block.update(self._by_level)
            return _config.to_block(block)
        block["enable_vllm_is_correction"] = self.enable_vllm_is_correction
        block["vllm_is_correction_type"] = self.vllm_is_correction_type
        if self.enable_vllm_is_correction:
            # Also if None, which is then an error and not the default of OpenRLHF's command line.
            block["vllm_is_truncated_threshold"] = self.vllm_is_truncated_threshold
        return _config.to_block(block)
