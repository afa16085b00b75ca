"""NeMo-RL's policy loss: ``nemo_rl.algorithms.loss.ClippedPGLossFn``.

    # from nemo_rl.algorithms.loss import ClippedPGLossFn
    from counterweight_rl.compat.nemo_rl import ClippedPGLossFn

Numbers and quirks are those of the dialect ``nemo_rl`` (NVIDIA-NeMo/RL @7ea279ab). The other names
of ``nemo_rl.algorithms.loss`` (``ClippedPGLossConfig``, ...) are NeMo-RL's own, imported on first
use. Differences:

* A new loss requests the loss of two tokens: a wrong setting is an error there, as in NeMo-RL, and
  so is a server that does not answer.
* ``positive_example_nll_weight`` is refused unless it is 0, and ``curr_logprobs_unfiltered`` beside
  a KL penalty, which would be of other log-probs than the surrogate.
* ``sampling_importance_ratio`` of sequences is the mean over sequences, not NeMo-RL's product of
  two sums; it is absent if they have no correction, or icepop.
* A weight that overflows is infinite or bounded, as in the dialect, where NeMo-RL takes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from counterweight_rl.compat import _config, _nemo_rl_metrics, _peers, _service
from counterweight_rl.dialect_fields import FIELDS
from counterweight_rl.errors import Violation, refuse

_HOME = "nemo_rl.algorithms.loss"

__getattr__ = _peers.getattr_from(
    __name__,
    {
        _HOME: (
            *("ClippedPGLossConfig", "ClippedPGLossDataDict", "DPOLossConfig", "DPOLossDataDict"),
            *("DPOLossFn", "DistillationLossConfig", "DistillationLossDataDict"),
            *("DistillationLossFn", "DraftCrossEntropyLossFn", "DraftLossWrapper"),
            *("MseValueLossConfig", "MseValueLossFn", "NLLLossFn", "PreferenceLossDataDict"),
            *("PreferenceLossFn", "SequencePackingFusionLossWrapper"),
            *("SequencePackingLossWrapper", "prepare_loss_input", "prepare_packed_loss_input"),
            "wrap_loss_fn_with_input_preparation",
        )
    },
)

# Attributes of NeMo-RL's object, and the defaults of its configuration.
_ATTRIBUTES: dict[str, Any] = {
    "disable_ppo_ratio": False,
    "force_on_policy_ratio": False,
    "kl_input_clamp_value": 20.0,
    "kl_output_clamp_value": 10.0,
    "positive_example_nll_weight": 0.0,
    "ratio_clip_c": None,
    "ratio_clip_max": 0.2,
    "ratio_clip_min": 0.2,
    "reference_policy_kl_penalty": 0.01,
    "reference_policy_kl_type": "k3",
    "sequence_level_importance_ratios": False,
    "truncated_importance_sampling_ratio": None,
    "truncated_importance_sampling_ratio_min": None,
    "truncated_importance_sampling_type": None,
    "use_cispo": False,
    "use_importance_sampling_correction": False,
    "use_on_policy_kl_approximation": False,
}


class ClippedPGLossFn:
    """The clipped policy-gradient loss; a ``LossFunction`` of NeMo-RL.

    It has the attributes of NeMo-RL's class, which each call reads.
    """

    disable_ppo_ratio: bool
    force_on_policy_ratio: bool
    reference_policy_kl_penalty: float
    reference_policy_kl_type: str
    sequence_level_importance_ratios: bool
    truncated_importance_sampling_type: str | None

    def __init__(self, cfg: Any, use_fused_linear_logprobs: bool = False) -> None:
        """Stores the settings, and requests the loss of two tokens.

        Args:
            cfg: A ClippedPGLossConfig, or a mapping or object with its fields; an absent one has
                NeMo-RL's default.
            use_fused_linear_logprobs: Read by NeMo-RL's forward pass.

        Raises:
            InvalidRequestError: A setting that NeMo-RL or the dialect refuses.
            CounterweightError: The server does not answer.
        """
        self.use_fused_linear_logprobs = use_fused_linear_logprobs
        given = _read(cfg)
        for name, default in _ATTRIBUTES.items():
            setattr(self, name, given.pop(name, default))
        self._by_token = given.pop("token_level_loss", True)
        if given.pop("use_kl_in_reward", False):
            self.reference_policy_kl_penalty = 0
        self._others = given  # which the server refuses by name
        zeros, ones = torch.zeros(1, 2), torch.ones(1, 2)
        names = ("current", "old", "rollout", "ref")
        _service.correct(
            "nemo_rl",
            self._block({}),
            release="",  # it runs from git
            **{f"{name}_log_probs": zeros for name in names if self._reads(name)},
            advantages=zeros,
            response_mask=ones,
            outputs=("loss",),
            metrics=False,
            own_warning=_OWN_WARNING,
        )

    @property
    def loss_type(self) -> Any:
        """NeMo-RL's ``LossType``."""
        return _interfaces().LossType("token_level" if self._by_token else "sequence_level")

    @property
    def input_type(self) -> Any:
        """NeMo-RL's ``LossInputType.LOGPROB``."""
        return _interfaces().LossInputType("logprob")

    @property
    def metric_normalizations(self) -> dict[str, Any]:
        """The divisor of each metric, a ``MetricNormalizer``."""
        divisors = _nemo_rl_metrics.divisors(
            by_token=self._by_token,
            by_sequence=self.sequence_level_importance_ratios,
            truncation=self.truncated_importance_sampling_type,
        )
        normalizer = _interfaces().MetricNormalizer
        return {name: normalizer(divisor) for name, divisor in divisors.items()}

    def __call__(
        self,
        next_token_logprobs: torch.Tensor,
        data: Mapping[str, Any],
        global_valid_seqs: torch.Tensor | None,
        global_valid_toks: torch.Tensor | None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Computes a micro-batch's loss.

        Args:
            next_token_logprobs: [B, T - 1] nats, of the tokens from the second on; the policy being
                trained, which gets the gradient.
            data: advantages, generation_logprobs, prev_logprobs (not with force_on_policy_ratio),
                reference_policy_logprobs (with a KL penalty) and token_mask, each [B, T];
                sample_mask, [B]. Masks hold 0 and 1.
            global_valid_seqs: Sequences of all ranks' micro-batches. None: of this one.
            global_valid_toks: The same of tokens.

        Returns:
            The loss, a scalar that can be differentiated by next_token_logprobs; NeMo-RL's metrics.

        Raises:
            InvalidRequestError: curr_logprobs_unfiltered beside a KL penalty; see
                ``counterweight_rl.compat``.
        """
        self._refuse_unfiltered(next_token_logprobs, data)
        samples = data["sample_mask"]
        mask = data["token_mask"][:, 1:] * samples.unsqueeze(-1)
        sequences = samples.sum() if global_valid_seqs is None else global_valid_seqs
        tokens = mask.sum() if global_valid_toks is None else global_valid_toks
        rollout = data["generation_logprobs"][:, 1:]
        old = data["prev_logprobs"][:, 1:] if self._reads("old") else next_token_logprobs.detach()
        ref = data["reference_policy_logprobs"][:, 1:] if self._reads("ref") else None
        loss, answered = _service.policy_loss(
            "nemo_rl",
            self._block({"global_valid_seqs": sequences, "global_valid_toks": tokens}),
            release="",
            current_log_probs=next_token_logprobs,
            old_log_probs=old if self._reads("old") else None,
            rollout_log_probs=rollout,
            ref_log_probs=ref,
            advantages=data["advantages"][:, 1:],
            response_mask=mask,
            own_warning=_OWN_WARNING,
        )
        own = _nemo_rl_metrics.of_tokens(
            next_token_logprobs,
            old,
            rollout,
            mask,
            float(tokens),
            kl_type=self.reference_policy_kl_type,
            is_ratio=not self._is_reinforce(),
        )
        counts = {"loss": loss.item(), "num_valid_samples": samples.sum().item()}
        return loss, {**own, **answered, **counts}

    def _reads(self, policy: str) -> bool:
        if policy == "old":
            return not self.force_on_policy_ratio
        return policy != "ref" or self.reference_policy_kl_penalty != 0

    def _block(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in _ATTRIBUTES}
        fields = {**fields, "token_level_loss": self._by_token, **self._others, **facts}
        return _config.to_block(fields)

    def _is_reinforce(self) -> bool:
        return self.disable_ppo_ratio and not self.force_on_policy_ratio

    def _refuse_unfiltered(self, current: torch.Tensor, data: Mapping[str, Any]) -> None:
        if not self._reads("ref") or "curr_logprobs_unfiltered" not in data:
            return
        if data["curr_logprobs_unfiltered"] is not current:
            problem = (
                "the KL penalty and the surrogate are of the same log-probs here; set "
                "reference_policy_kl_penalty to 0, or sample without top-k and top-p"
            )
            raise refuse([Violation("curr_logprobs_unfiltered", problem)])


_OWN_WARNING = "Metrics of nemo_rl"


def _read(cfg: Any) -> dict[str, Any]:
    """Returns the given fields, and those that a ClippedPGLossConfig took without knowing them."""
    extra = getattr(cfg, "model_extra", None) or {}
    return {
        **_config.to_block(cfg, FIELDS["nemo_rl"]),
        **_config.to_block(extra, FIELDS["nemo_rl"]),
    }


def _interfaces() -> Any:
    return _peers.load(f"{_HOME}.interfaces")
