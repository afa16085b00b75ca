"""The parts of TRL's GRPOTrainer that GRPOMixin uses, and a batch for it."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from google.protobuf import json_format
from sample import OLD, ROLLOUT, Request, sent

from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.compat.trl import GRPOMixin

GRADIENT = np.array([[0.5, -2.0, 0], [0.25, 0, 0]], "<f4")
LOSS = 1.5
ENTROPIES = np.array([[1, 2, 3], [5, 0, 0]], np.float32)
METRICS = {
    "kl": 0.25,
    "clip_ratio/low_mean": 0.5,
    "clip_ratio/high_mean": 0.0,
    "clip_ratio/region_mean": 0.5,
    "clip_ratio/low_min": 0.125,
    "clip_ratio/high_max": 0.75,
    "sampling/importance_sampling_ratio/mean": 9.0,  # TRL logs it
}
BLOCK = {
    "loss_type": "grpo",
    "importance_sampling_level": "token",
    "beta": 0.0,
    "epsilon": 0.2,
    "epsilon_high": 0.3,
    "delta": None,
    "max_completion_length": 16,
    "use_bias_correction_kl": True,
    "off_policy_mask_threshold": None,
    "use_vllm": True,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "token_truncate",
    "num_items_in_batch": 48.0,
    "num_processes": 2.0,
    "gradient_accumulation_steps": 4.0,
    "steps_per_generation": 8.0,
}


def grpo_config(**changes: Any) -> SimpleNamespace:
    """Some of TRL's fields, with the values behind BLOCK."""
    fields = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": None,
        "delta": None,
        "max_completion_length": 16,
        "use_bias_correction_kl": True,
        "use_liger_kernel": True,
        "off_policy_mask_threshold": None,
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_cap": 3.0,
        "gradient_accumulation_steps": 8,
        "steps_per_generation": 8,
        "top_entropy_quantile": 1.0,
        "entropy_coef": 0.0,
        "use_adaptive_entropy": False,
        "hub_token": "hf_secret",
        "push_to_hub_token": "hf_secret",
    }
    return SimpleNamespace(**{**fields, **changes})


class Accelerator:
    """Two ranks: this one, and one with the sums and values of ``other``."""

    num_processes = 2
    sync_gradients = True

    def __init__(self) -> None:
        self.other: dict[str, Any] = {}

    def reduce(self, tensor: Any, reduction: str) -> Any:
        assert reduction == "sum"
        return tensor + self.other.get("sums", 0)

    def gather(self, tensor: Any) -> Any:
        others = self.other.get("extrema") if tensor.dim() == 2 else None
        return tensor if others is None else torch.cat([tensor, torch.tensor(others)])

    gather_for_metrics = gather


class GRPOTrainer:
    """The parts of TRL's class that the mixin uses."""

    aux_loss_enabled = False
    router_aux_loss_coef = 0.5
    current_gradient_accumulation_steps = 4  # as in the last step of an epoch

    def __init__(self, args: Any) -> None:
        self.args = args
        self.accelerator = Accelerator()
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self._metrics: Any = {"train": defaultdict(list), "eval": defaultdict(list)}
        own = "loss_type importance_sampling_level beta use_vllm top_entropy_quantile"
        for name in f"{own} entropy_coef use_adaptive_entropy".split():
            setattr(self, name, getattr(args, name))
        self.epsilon_low, self.epsilon_high = args.epsilon, 0.3
        self._entropy_bonus_enabled = self.entropy_coef != 0.0

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        raise AssertionError("TRL's own loss was computed")

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        pixel_values: Any = None,
    ) -> tuple[Any, Any, Any]:
        assert input_ids.tolist() == [[1, 2, 3, 4], [1, 5, 6, 0]]
        assert attention_mask.tolist() == [[1, 1, 1, 1], [0, 1, 1, 0]]
        assert (logits_to_keep, compute_entropy) == (3, True)
        assert pixel_values is None or pixel_values == "pixels"
        self.images = pixel_values
        return *model, torch.tensor(2.0) if compute_aux_loss else None

    def get_high_entropy_mask(self, entropies: Any, mask: Any, threshold: float) -> Any:
        return (entropies >= 2) & (mask > 0)


GRPOTrainer.__module__ = "trl.trainer.grpo_trainer"


class Trainer(GRPOMixin, GRPOTrainer):
    pass


def model() -> tuple[Any, Any]:
    """The forward pass's log-probs and entropies."""
    return torch.from_numpy(OLD * 2).requires_grad_(), torch.from_numpy(ENTROPIES).requires_grad_()


def inputs(**changes: Any) -> dict[str, Any]:
    batch = {
        "prompt_ids": torch.tensor([[1], [1]]),
        "prompt_mask": torch.tensor([[1], [0]]),
        "completion_ids": torch.tensor([[2, 3, 4], [5, 6, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "tool_mask": torch.tensor([[1, 1, 0], [1, 0, 1]]),  # their product is MASK
        "advantages": torch.tensor([1.0, -2.0]),
        "num_items_in_batch": torch.tensor(48),
        "old_per_token_logps": torch.from_numpy(OLD.copy()),
        "sampling_per_token_logps": torch.from_numpy(ROLLOUT.copy()),
        "importance_sampling_ratio": torch.ones(2, 3),
        **changes,
    }
    return {name: value for name, value in batch.items() if value is not None}


def block(request: Request) -> Any:
    return json_format.MessageToDict(request.method.dialect.block)


def roles(request: Request) -> set[str]:
    return {
        tensor_pb2.TensorRole.Name(t.role).removeprefix("TENSOR_ROLE_") for t in request.tensors
    }


def values(request: Request, name: str) -> Any:
    data = sent(request, tensor_pb2.TensorRole.Value(f"TENSOR_ROLE_{name}")).data
    return np.frombuffer(data, "<f4").reshape(-1).tolist()
