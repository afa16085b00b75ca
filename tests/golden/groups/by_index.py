"""Runs systems that find groups by an index of the rows: verl, SkyRL and NeMo-RL.

Each function here returns the estimators of one system.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import sources
import torch
from batches import BATCHES, FEW, Batch

Run = Callable[[Batch, torch.dtype], torch.Tensor]


def no_remark(_: Batch) -> str:
    return ""


def padded(batch: Batch) -> str:
    return f"padded to {max(batch.tokens)} tokens"


@dataclasses.dataclass(frozen=True)
class Estimator:
    """A function of a system with settings.

    Attributes:
        function: The name in its file.
        arguments: By the system's names.
        run: Returns advantages [B, T], computed in a dtype if the system's code lets it.
        batches: Those to run it on.
        sizes: Returns further arguments, which follow from the batch.
        groups: Returns a remark on the groups, or the shape, that the function sees.
    """

    function: str
    arguments: dict[str, Any]
    run: Run
    batches: list[Batch] = dataclasses.field(default_factory=lambda: BATCHES)
    sizes: Callable[[Batch], dict[str, Any]] = lambda _: {}
    groups: Callable[[Batch], str] = no_remark


VERL = "verl/trainer/ppo/core_algos.py"
SKYRL = "skyrl/backends/skyrl_train/utils/ppo_utils.py"
SKYRL_TRAINER = "skyrl/train/trainer.py"
NEMO_RL = "nemo_rl/algorithms/advantage_estimator.py"
NEMO_RL_BASELINE = "nemo_rl/algorithms/utils.py"


def verl(source: sources.Source) -> Iterator[Estimator]:
    """The mask is the one after rejection, as in verl's trainer."""
    groupwise = source.names(
        "verl/utils/groupwise.py",
        *("_resolve_device", "_to_1d_numpy_object_array", "as_torch_index", "group_mean_std"),
    )
    functional = source.names(
        "verl/utils/torch_functional.py",
        *("masked_sum", "masked_mean", "masked_var", "masked_whiten"),
    )
    by_std: list[dict[str, Any]] = [
        {"norm_adv_by_std_in_grpo": True},
        {"norm_adv_by_std_in_grpo": False},
    ]
    names: dict[str, list[dict[str, Any]]] = {
        "compute_grpo_outcome_advantage": by_std,
        "compute_grpo_vectorized_outcome_advantage": by_std,
        "compute_rloo_outcome_advantage": [{}],
        "compute_rloo_vectorized_outcome_advantage": [{}],
        "compute_reinforce_plus_plus_baseline_outcome_advantage": [{}],
        "compute_opo_outcome_advantage": [{}],
        "compute_grpo_passk_outcome_advantage": [{"config": {"norm_adv_by_std_in_grpo": True}}],
        "compute_gpg_outcome_advantage": [{}],
    }
    core = source.names(VERL, *names, verl_F=SimpleNamespace(**functional), **groupwise)

    def run(name: str, arguments: dict[str, Any], batch: Batch, dtype: torch.dtype) -> torch.Tensor:
        index = np.array(batch.group_ids)
        return core[name](batch.token_rewards(dtype), batch.mask(dtype), index, **arguments)[0]

    for name, variants in names.items():
        for arguments in variants:
            few = any(word in name for word in ("opo", "passk", "gpg"))
            settings = {key: value for key, value in arguments.items() if key != "config"}
            settings |= arguments.get("config", {})
            yield Estimator(
                name, settings, functools.partial(run, name, arguments), FEW if few else BATCHES
            )


def skyrl(source: sources.Source) -> Iterator[Estimator]:
    """With advantage_batch_normalize, the statement of the trainer that does so runs afterwards."""
    loguru = ModuleType("loguru")
    vars(loguru)["logger"] = logging.getLogger("loguru")
    logging.getLogger("loguru").setLevel(logging.ERROR)
    sys.modules.setdefault("loguru", loguru)  # imported within a function
    names: dict[str, list[dict[str, Any]]] = {
        "compute_grpo_outcome_advantage": [
            {"grpo_norm_by_std": True},
            {"grpo_norm_by_std": False},
            {"grpo_norm_by_std": True, "advantage_batch_normalize": True},
        ],
        "compute_rloo_outcome_advantage": [{}],
        "compute_maxrl_advantage": [{}],
    }
    space = source.names(SKYRL, *names)
    switch = "if self.cfg.trainer.algorithm.advantage_batch_normalize:"
    whiten = source.statements(SKYRL_TRAINER, "_normalize_advantages", switch, switch)

    def run(
        name: str, arguments: dict[str, Any], normalize: bool, batch: Batch, dtype: torch.dtype
    ) -> torch.Tensor:
        mask = batch.mask(dtype)
        index = np.array(batch.group_ids)
        advantages = space[name](batch.token_rewards(dtype), mask, index, **arguments)[0]
        algorithm = SimpleNamespace(advantage_batch_normalize=normalize)
        names: dict[str, Any] = {
            "self": SimpleNamespace(
                cfg=SimpleNamespace(trainer=SimpleNamespace(algorithm=algorithm))
            ),
            "advantages": advantages,
            "response_mask": mask,
            "data": {"advantages": advantages},
        }
        sources.execute(whiten, SKYRL_TRAINER, names)
        return names["data"]["advantages"]

    for name, variants in names.items():
        for arguments in variants:
            given = dict(arguments)
            normalize = given.pop("advantage_batch_normalize", False)
            few = "maxrl" in name
            yield Estimator(
                name,
                arguments,
                functools.partial(run, name, given, normalize),
                FEW if few else BATCHES,
                groups=padded if normalize else no_remark,
            )


def nemo_rl(source: sources.Source) -> Iterator[Estimator]:
    """Its trainer lets all rows vote; only the function of the baseline has a valid_mask.

    With `valid_mask` among the arguments, which its trainer has not, the rows of which a token is
    kept are valid, and the estimator's own lines turn that baseline into advantages.
    """
    baseline = source.names(NEMO_RL_BASELINE, "calculate_baseline_and_std_per_prompt")
    function = baseline["calculate_baseline_and_std_per_prompt"]

    def run(name: str, arguments: dict[str, Any], batch: Batch, dtype: torch.dtype) -> torch.Tensor:
        mask = batch.mask(dtype)
        valid = mask.amax(dim=1)
        settings = dict(arguments)

        def of_valid(prompts: Any, rewards: Any, _: Any, **others: Any) -> Any:
            return function(prompts, rewards, valid, **others)

        used = of_valid if settings.pop("valid_mask", None) else function
        space = source.names(NEMO_RL, name, calculate_baseline_and_std_per_prompt=used)
        loss = SimpleNamespace(
            use_kl_in_reward=False, reference_policy_kl_penalty=0.0, reference_policy_kl_type="k3"
        )
        estimator = space[name](SimpleNamespace(**settings), loss)
        prompts = torch.tensor(batch.group_ids)[:, None]
        return estimator.compute_advantage(prompts, batch.row_rewards(dtype), mask)

    for leave_one_out in (True, False):
        for normalize in (True, False):
            settings = {
                "use_leave_one_out_baseline": leave_one_out,
                "normalize_rewards": normalize,
            }
            for given in (settings, {**settings, "valid_mask": "rows with a kept token"}):
                name = "GRPOAdvantageEstimator"
                yield Estimator(name, given, functools.partial(run, name, given))
    name, given = "ReinforcePlusPlusAdvantageEstimator", {"minus_baseline": True}
    yield Estimator(name, given, functools.partial(run, name, given))
