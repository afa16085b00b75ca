"""TRL's importance-sampling ratio, which is computed inside a method of GRPOTrainer.

The statements are taken from the installed source at run time and executed on given tensors: those
under ``if self.use_vllm and self.vllm_importance_sampling_correction`` that fill
``vllm_importance_sampling_ratio``, and those that report ``sampling/*``.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from trl.trainer import grpo_trainer

METHOD = "_generate_and_score_completions"
CONDITION = "self.use_vllm and self.vllm_importance_sampling_correction"
RATIO = "vllm_importance_sampling_ratio"
FILLED = (RATIO, ast.Store)
METRIC = "sampling/sampling_logp_difference/mean"


def _statements() -> CodeType:
    source = textwrap.dedent(inspect.getsource(getattr(grpo_trainer.GRPOTrainer, METHOD)))
    condition = ast.dump(ast.parse(CONDITION, mode="eval").body)
    blocks = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and ast.dump(node.test) == condition
    ]

    def first(wanted: Callable[[ast.AST], bool]) -> ast.If:
        found = [block for block in blocks if any(map(wanted, ast.walk(block)))]
        assert found, f"{METHOD} does not look as it did"
        return found[0]

    fills = first(lambda node: isinstance(node, ast.Name) and (node.id, type(node.ctx)) == FILLED)
    reports = first(lambda node: isinstance(node, ast.Constant) and node.value == METRIC)
    module = ast.Module([*fills.body, *reports.body], type_ignores=[])
    return compile(module, grpo_trainer.__file__, "exec")


_CODE = _statements()


def ratio(
    old: torch.Tensor, sampling: torch.Tensor, mask: torch.Tensor, **settings: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    """Runs the trainer's own statements in one process."""
    metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list)}
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(gather=lambda tensor: tensor), _metrics=metrics, **settings
    )
    names = {
        "self": trainer,
        "mode": "train",
        "device": old.device,
        "old_per_token_logps": old,
        "sampling_per_token_logps": sampling,
        "completion_mask": mask,
        "tool_mask": None,
    }
    with torch.no_grad():
        names |= _run(names)
    return names[RATIO], {name: values[-1] for name, values in metrics["train"].items()}


def _run(names: dict[str, Any]) -> dict[str, Any]:
    scope = {**vars(grpo_trainer), **names}
    exec(_CODE, scope)
    return {RATIO: scope[RATIO]}
