"""Runs systems with groups that are rows of a matrix of rewards: TRL, OpenRLHF and slime.

Each function here returns the estimators of one system, as in by_index.py. The group's size is
that of the batch's largest group, so that unequal groups show each system's answer to them.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import sources
import torch
import torch.distributed as dist
from batches import BATCHES, FEW, Batch
from by_index import Estimator

TRL = "trl/trainer/grpo_trainer.py"
OPENRLHF = "openrlhf/trainer/ppo_utils/experience_maker.py"
SLIME = "slime/ray/rollout.py"
SLIME_LOSS = "slime/backends/megatron_utils/loss.py"


def trl(source: sources.Source) -> Iterator[Estimator]:
    """One reward function of weight 1; the trainer's statements from rewards to advantages."""
    function = source.names("trl/trainer/utils.py", "nanstd")["nanstd"]
    statements = source.statements(
        TRL,
        "_generate_and_score_completions",
        "unscorable_mask = ",
        "advantages = torch.nan_to_num(",
    )

    def run(arguments: dict[str, Any], batch: Batch, dtype: torch.dtype) -> torch.Tensor:
        trainer = SimpleNamespace(
            **arguments, reward_weights=torch.ones(1, dtype=dtype), reward_funcs=[None]
        )
        names = {
            "torch": torch,
            "nanstd": function,
            "self": trainer,
            "device": torch.device("cpu"),
            "num_generations": batch.size,
            "rewards_per_func": batch.row_rewards(dtype)[:, None],
        }
        sources.execute(statements, TRL, names)
        return names["advantages"][:, None].expand(-1, max(batch.tokens))

    for scale, aggregation in (
        ("group", "sum_then_normalize"),
        ("batch", "sum_then_normalize"),
        ("none", "sum_then_normalize"),
        ("group", "normalize_then_sum"),
    ):
        given = {"scale_rewards": scale, "multi_objective_aggregation": aggregation}
        yield Estimator(
            "_generate_and_score_completions",
            given,
            functools.partial(run, given),
            BATCHES if aggregation == "sum_then_normalize" else FEW,
            sizes=lambda batch: {"num_generations": batch.size},
            groups=lambda batch: "" if batch.consecutive else f"groups are {batch.size} rows each",
        )


def openrlhf(source: sources.Source) -> Iterator[Estimator]:
    """One experience, without a KL penalty; its index has the group, and the row in it."""
    space = source.names(
        OPENRLHF,
        *("compute_advantages_and_returns", "get_cumulative_returns"),
        itertools=itertools,
        **source.names("openrlhf/models/utils.py", "compute_reward"),
        **source.names("openrlhf/trainer/ppo_utils/length_penalty.py", "apply_length_penalties"),
    )

    def run(arguments: dict[str, Any], batch: Batch, dtype: torch.dtype) -> torch.Tensor:
        mask = batch.mask(dtype)
        args = SimpleNamespace(
            reward=SimpleNamespace(clip_range=arguments["clip_range"]),
            rollout=SimpleNamespace(n_samples_per_prompt=batch.size),
            algo=SimpleNamespace(
                advantage=SimpleNamespace(
                    estimator=arguments["estimator"],
                    gamma=1.0,
                    no_std_norm=arguments.get("no_std_norm", False),
                )
            ),
        )
        maker = SimpleNamespace(
            strategy=SimpleNamespace(args=args),
            advantage_estimator=arguments["estimator"],
            kl_ctl=SimpleNamespace(value=0.0),
        )
        maker.get_cumulative_returns = functools.partial(space["get_cumulative_returns"], maker)
        experience = SimpleNamespace(
            index=places(batch.group_ids),
            rewards=batch.row_rewards(dtype),
            action_mask=mask,
            kl=torch.zeros_like(mask),
            info={},
        )
        return space["compute_advantages_and_returns"](maker, [experience])[0].advantages

    wide = [-1e9, 1e9]
    narrow: dict[str, Any] = {"estimator": "group_norm", "clip_range": [-10.0, 10.0]}
    for given in (
        {"estimator": "rloo", "clip_range": wide},
        {"estimator": "reinforce_baseline", "clip_range": wide},
        {"estimator": "reinforce_baseline", "clip_range": wide, "no_std_norm": True},
        {"estimator": "group_norm", "clip_range": wide},
        {"estimator": "dr_grpo", "clip_range": wide},
        {"estimator": "dr_grpo", "clip_range": [-10.0, 10.0]},
        narrow,
    ):
        yield Estimator(
            "compute_advantages_and_returns",
            given,
            functools.partial(run, given),
            FEW if given == narrow else BATCHES,
            sizes=lambda batch: {"n_samples_per_prompt": batch.size},
            groups=lambda batch: (
                "" if batch.equal else f"groups are {batch.size} rows each, in the order of ids"
            ),
        )


def places(group_ids: list[int]) -> list[int]:
    """Returns each row's place in the order in which groups are consecutive."""
    order = sorted(range(len(group_ids)), key=lambda row: (group_ids[row], row))
    return [order.index(row) for row in range(len(group_ids))]


def slime(source: sources.Source) -> Iterator[Estimator]:
    """Its rewards' processing, then its advantages by token in a group of one process."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    process = source.names(SLIME, "_post_process_rewards")["_post_process_rewards"]
    mpu = SimpleNamespace(
        is_pipeline_last_stage=lambda: True,
        get_context_parallel_world_size=lambda: 1,
        get_data_parallel_group=lambda **_: dist.group.WORLD,
    )
    advantages = source.names(
        SLIME_LOSS,
        "compute_advantages_and_returns",
        mpu=mpu,
        **source.names("slime/utils/distributed_utils.py", "distributed_masked_whiten", dist=dist),
        **source.names(
            "slime/utils/ppo_utils.py",
            *("get_grpo_returns", "get_reinforce_plus_plus_baseline_advantages"),
        ),
    )["compute_advantages_and_returns"]

    def run(arguments: dict[str, Any], batch: Batch, dtype: torch.dtype) -> torch.Tensor:
        args = SimpleNamespace(
            **arguments,
            **prompts(batch),
            kl_coef=0.0,
            use_rollout_logprobs=False,
            custom_advantage_function_path=None,
            use_opd=False,
        )
        samples = [
            SimpleNamespace(get_reward_value=lambda _, reward=reward: reward)
            for reward in batch.row_rewards(dtype).tolist()
        ]
        manager = SimpleNamespace(args=args, custom_reward_post_process_func=None)
        masks = [
            (torch.arange(n) < kept).to(dtype)
            for n, kept in zip(batch.tokens, batch.kept_tokens, strict=True)
        ]
        data: dict[str, Any] = {
            "log_probs": [torch.zeros(n, dtype=dtype) for n in batch.tokens],
            "rewards": process(manager, samples)[1],
            "response_lengths": batch.tokens,
            "total_lengths": batch.tokens,
            "loss_masks": masks,
        }
        advantages(args, data)
        return torch.nn.utils.rnn.pad_sequence(data["advantages"], batch_first=True)

    off = {"normalize_advantages": False}
    both = {"rewards_normalization": True, "grpo_std_normalization": True}
    centred = {"rewards_normalization": True, "grpo_std_normalization": False}
    raw = {"rewards_normalization": False, "grpo_std_normalization": True}
    for given in (
        {"advantage_estimator": "grpo", **both, **off},
        {"advantage_estimator": "grpo", **centred, **off},
        {"advantage_estimator": "grpo", **raw, **off},
        {"advantage_estimator": "grpo", **both, "normalize_advantages": True},
        {"advantage_estimator": "gspo", **both, **off},
        {"advantage_estimator": "cispo", **both, **off},
        {
            "advantage_estimator": "reinforce_plus_plus_baseline",
            **both,
            "normalize_advantages": True,
        },
    ):
        few = given["advantage_estimator"] in {"gspo", "cispo"}
        yield Estimator(
            "compute_advantages_and_returns",
            given,
            functools.partial(run, given),
            FEW if few or not given["rewards_normalization"] else BATCHES,
            sizes=prompts,
            groups=lambda batch: (
                ""
                if batch.consecutive
                else f"groups are {batch.size} rows each"
                if batch.equal
                else "all rows are one group"
            ),
        )


def prompts(batch: Batch) -> dict[str, int]:
    """Returns slime's names for the group's size and the number of groups."""
    number = len(Counter(batch.group_ids))
    return {"n_samples_per_prompt": batch.size, "rollout_batch_size": number}
