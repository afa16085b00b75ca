"""ms-swift's GRPO losses, cut from its trainers, for batches of log-probs instead of a model."""

from __future__ import annotations

import dataclasses
import typing
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import cut
import random_batches
import torch

_METHODS = (
    *("_compute_sequence_level_ratios", "_apply_rollout_importance_sampling"),
    *("_compute_off_policy_sequence_mask", "_compute_rollout_offpolicy_metrics"),
    "_compute_is_correction_metrics",
)
_OF_TRAINER = (
    *("_compute_loss_and_metrics", "_undo_gradient_accumulation_scaling"),
    "_get_rollout_is_correction",
)
# Data-parallel ranks of the second trainer.
RANKS = 2


def _undecorated(function: Any) -> Any:
    return function


_parallel = SimpleNamespace(
    get_data_parallel_world_size=lambda: RANKS,
    get_data_parallel_group=lambda **_: None,
)
original = cut.definitions(
    "cut_from_ms_swift",
    {
        "swift/rlhf_trainers/grpo_trainer.py": (
            "WINDOW_NORMALIZED_LOSS_TYPES",
            *(f"GRPOTrainer.{name}" for name in (*_METHODS, *_OF_TRAINER)),
        )
    },
    torch=torch,
    gather=lambda values: values,
    gather_object=lambda values: values,
    nanmin=lambda values: values[~values.isnan()].min(),
    nanmax=lambda values: values[~values.isnan()].max(),
)
megatron = cut.definitions(
    "cut_from_ms_swift_megatron",
    {
        "swift/megatron/trainers/grpo_trainer.py": tuple(
            f"MegatronGRPOTrainer.{name}" for name in (*_METHODS, "loss_func")
        )
    },
    torch=torch,
    mpu=_parallel,
    gather=lambda values, **_: values,
    profiling_decorator=_undecorated,
)
arguments = cut.definitions(
    "cut_from_ms_swift_arguments",
    {
        "swift/rlhf_trainers/args_mixin.py": (
            *("VllmArguments", "RolloutTrainerArgumentsMixin", "GRPOArgumentsMixin"),
        )
    },
    dataclass=dataclasses.dataclass,
    field=dataclasses.field,
    **{name: getattr(typing, name) for name in ("Any", "Dict", "List", "Literal", "Optional")},
)


def defaults() -> dict[str, Any]:
    """Returns the arguments' defaults, and those of TRL's that ms-swift gives other ones."""
    fields = dataclasses.fields(arguments.GRPOArgumentsMixin)
    own = {one.name: one.default for one in fields if one.default is not dataclasses.MISSING}
    return {**own, "loss_type": "grpo", "beta": 0.04, "max_completion_length": 512}


def trainer(kind: Any, settings: dict[str, Any]) -> Any:
    """Returns a trainer of one of the two classes with the settings; others have defaults."""
    given = {**defaults(), **settings}
    high = given["epsilon_high"]
    made = kind()
    vars(made).update(
        given,
        epsilon_low=given["epsilon"],
        epsilon_high=given["epsilon"] if high is None else high,
        kl_in_reward=False,
        compute_entropy=False,
        disable_rollout_importance_sampling=False,
        _has_teacher=False,
        chord_sft_iterator=None,
        model=SimpleNamespace(training=True),
        unwrapped_models=[SimpleNamespace(training=True)],
        model_accepts_loss_kwargs=False,
        compute_loss_func=None,
        accelerator=SimpleNamespace(num_processes=1, gather_for_metrics=lambda values: values),
        args=SimpleNamespace(
            delta=given["delta"],
            log_entropy=False,
            num_microbatches=given.get("num_microbatches", 1),
            gradient_accumulation_steps=given.get("gradient_accumulation_steps", 1),
        ),
        micro_batch_size=random_batches.ROWS,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _all_reduce_metric=lambda values: values,
        _step=2,
        steps_per_generation=2,
        state=SimpleNamespace(global_step=3),
    )
    made.args.overlong_filter = given["overlong_filter"]
    made._get_per_token_logps_and_entropies = lambda current, *_, **__: (current, None)
    return made


def _batch(given: dict[str, torch.Tensor | None], items: int) -> Any:
    truncated = given.get("truncated")
    return SimpleNamespace(
        completion_mask=given["mask"],
        truncated_mask=(
            torch.zeros(random_batches.ROWS, dtype=torch.bool) if truncated is None else truncated
        ),
        advantages=given["advantages"],
        ref_per_token_logps=given["ref"],
        old_per_token_logps=given["old"],
        rollout_per_token_logps=given["rollout"],
        num_items_in_batch=torch.tensor(items),
    )


_CLIPS = {
    "low_clip_mean": "clip_ratio/low_mean",
    "low_clip_min": "clip_ratio/low_min",
    "high_clip_mean": "clip_ratio/high_mean",
    "high_clip_max": "clip_ratio/high_max",
    "region_clip_mean": "clip_ratio/region_mean",
    "cispo_clip_ratio": "cispo_clip_ratio",
}


def _with(mixin: Any, trainer: Any) -> Any:
    return trainer if mixin is object else type("Trainer", (mixin, trainer), {})


def answer(
    settings: dict[str, Any],
    given: dict[str, torch.Tensor | None],
    items: int,
    mixin: Any = object,
) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Returns the loss, its gradient by the current log-probs, and the metrics by logged names.

    Args:
        settings: GRPO's arguments; with ``backend: megatron`` the loss is of the second trainer.
        given: current, old, rollout, ref, advantages and mask, [B, T] or None.
        items: Tokens of the step on all ranks.
        mixin: A class with methods that replace the trainer's.
    """
    assert given["current"] is not None
    current = given["current"].clone().requires_grad_()
    batch = _batch(given, items)
    if settings.get("backend") == "megatron":
        made = trainer(_with(mixin, megatron.MegatronGRPOTrainer), settings)
        loss, logged = made.loss_func(current, {"grpo_batch": batch})
        metrics = {name: float(value) for name, value in logged.items()}
    else:
        made = trainer(_with(mixin, original.GRPOTrainer), settings)
        loss, data = made._compute_loss_and_metrics(current, {}, batch)
        clips = {_CLIPS[name]: value for name, value in data.get("clipping", {}).items()}
        correction = data.get("rollout_correction", {})
        of_rollout = {f"rollout_correction/{name}": float(one) for name, one in correction.items()}
        kl = {"kl": data["kl"]} if "kl" in data else {}
        metrics = {**clips, **of_rollout, **kl}
    loss.backward()
    assert current.grad is not None
    return loss.item(), current.grad, metrics
