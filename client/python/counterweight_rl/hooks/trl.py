"""TRL: weights and mask by the service, the loss by TRL, fused or not.

    from counterweight_rl.hooks.trl import CorrectionMixin, GRPOTrainer

    class Trainer(CorrectionMixin, MyTrainer): ...  # for a subclass of your own

Once per generated batch the service computes ``counterweight_method`` (an attribute of the class)
or ``COUNTERWEIGHT_METHOD``, and TRL's loss takes the product of weights and keep mask as its
``importance_sampling_ratio``. Masked slots have 1, not 0, because the VESPO loss sums its
logarithms without the mask. Without a method it is the ratio of the GRPOConfig's own fields.

Rejected tokens stay in TRL's divisor, and ``sampling/importance_sampling_ratio/*`` describe TRL's
own ratio. No call is made in the training steps; ``counterweight_rl.compat.trl`` computes the loss
too.

With a run (``COUNTERWEIGHT_RUN``) receipts of the weights travel with the rows, so that the report
of a step shows whether TRL's loss used them.
"""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _peers, _service
from counterweight_rl.compat.trl import ratio_and_answer
from counterweight_rl.config import Method
from counterweight_rl.hooks import _arguments, _trl_receipts
from counterweight_rl.result import Result

__all__ = ["CorrectionMixin"]

_MODES = (
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_clip_max",
)
# Metrics that every method has; TRL averages each over the ranks.
_METRICS = ("kl", "k3", "kept_token_fraction", "weight_mean")

# A class of TRL or of the user, which has everything else.
_Trainer: Any = object


class CorrectionMixin(_Trainer):
    """Gives a GRPOTrainer the service's ratio; needs ``use_vllm`` and its correction.

    Attributes:
        counterweight_method: A preset's name, a mapping, or JSON, as in ``hooks/README.md``; None:
            the environment's, else the GRPOConfig's own ``vllm_importance_sampling_*``.

    Raises:
        ValueError: On creation: the correction is switched off, a setting is out of its range, or
            the server refuses the method.
        CounterweightError: On creation: the server does not answer.
    """

    counterweight_method: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.vllm_importance_sampling_correction:
            raise ValueError(
                "CorrectionMixin needs vllm_importance_sampling_correction=True, with which TRL "
                "multiplies its loss by the ratio"
            )
        self._counterweight: Method | None = _arguments.method_of(self)
        tokens = torch.zeros(1, 2)
        self._counterweight_ratio(tokens, tokens, torch.ones(1, 2), metrics=False)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.use_vllm:
            raise ValueError(
                "CorrectionMixin needs use_vllm=True: without it TRL has no log-probs of a sampler"
            )
        output = super()._generate_and_score_completions(inputs)
        mask = _trl_receipts.mask_of(output)
        ratio, result = self._counterweight_ratio(
            output["old_per_token_logps"], output["sampling_per_token_logps"], mask
        )
        output[_trl_receipts.RATIO] = ratio
        if _service.reports_steps():
            output.update(_trl_receipts.of_rows(result, mask))
        metrics = result.metrics
        log = self._metrics["train" if self.model.training else "eval"]
        for name in _METRICS:
            if name in metrics:
                value = ratio.new_tensor(metrics[name], dtype=torch.float32)
                log[f"counterweight/{name}"].append(self.accelerator.gather(value).nanmean().item())
        return output

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes TRL's loss, and enters what it used into the step's report."""
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if self.model.training:
            _service.set_step(self.state.global_step)
            _service.enter(lambda books: _trl_receipts.enter(books, inputs))
        return loss

    def _counterweight_ratio(
        self, old: torch.Tensor, sampling: torch.Tensor, mask: torch.Tensor, **options: Any
    ) -> tuple[torch.Tensor, Result[torch.Tensor]]:
        """Returns the ratio, [B, T] or [B, 1], and the answer."""
        method = self._counterweight
        if method is None:
            modes = {name: getattr(self, name) for name in _MODES}
            return ratio_and_answer(old, sampling, mask, **modes, **options)
        result = _service.ask(
            method,
            old_log_probs=old,
            rollout_log_probs=sampling,
            response_mask=mask,
            once_per_batch=True,
            **options,
        )
        assert result.keep_mask is not None  # a default output
        ratio = result.keep_mask.to(old.dtype)
        if result.weights is not None:
            ratio = ratio * result.weights.to(old.dtype)
        return ratio.masked_fill(mask == 0, 1), result


__getattr__ = _peers.getattr_deriving(
    __name__,
    {"GRPOTrainer": "trl"},
    CorrectionMixin,
    "TRL's GRPOTrainer with the service's ratio; see CorrectionMixin.",
)
