"""Runs one step on 1, 2, 3, 4 and 7 processes of torch.distributed, and pickles what each rank has.

Usage: distributed_steps.py FILE WORLD...
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
import torch
import torch.distributed
from batches import padded_batch
from counterweight_rl.distributed import Step

ROWS, WIDTH = 61, 300
CLIPPED = cw.PolicyLoss(
    surrogate="ppo_clip",
    aggregation="token_mean",
    denominator="kept",
    clip_low=0.2,
    clip_high=0.2,
)
METHODS: dict[str, cw.Method] = {
    "normalized": cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source="old_rollout", level="token", bound="truncate", upper=2.0, normalize=True
        ),
        rules=[
            cw.RejectionRule(
                ratio_source="old_rollout",
                estimator="ratio",
                aggregation="mean",
                lower=0.97,
                upper=1.03,
            )
        ],
        policy_loss=CLIPPED,
    ),
    "turns": cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source="old_rollout", level="turn", bound="truncate", upper=1.1, normalize=True
        ),
        rules=[
            cw.RejectionRule(
                ratio_source="old_rollout",
                estimator="k3",
                aggregation="turn_mean",
                upper=0.03,
            )
        ],
        policy_loss=CLIPPED,
        sequence_filter=cw.SequenceFilter(ratio_source="old_rollout", upper=1.18),
    ),
    "preset": "geo_rs_token_tis_ppo_clip",
    "rows": "gspo",
    "verl": cw.Dialect(
        "verl",
        {
            "rollout_is": "token",
            "rollout_is_threshold": 2.0,
            "rollout_is_batch_normalize": True,
            "rollout_rs": "token_k3",
            "rollout_rs_threshold": 0.1,
        },
    ),
}


def batch() -> dict[str, Any]:
    made = padded_batch(ROWS, WIDTH, spread=0.2, seed=3)
    return {name: torch.from_numpy(array) for name, array in made.items()}


def shares(world: int) -> list[np.ndarray]:
    """The rows of each rank: ragged, out of order, the second of seven empty."""
    order = np.random.default_rng(world).permutation(ROWS)
    cuts = np.sort(np.random.default_rng(world + 100).integers(0, ROWS, world - 1))
    if world == 7:
        cuts[1] = cuts[0]
    return np.split(order, cuts)


def micro_batches(rows: np.ndarray, method: cw.Method) -> list[tuple[np.ndarray, dict[str, Any]]]:
    whole = batch()
    if isinstance(method, cw.Dialect):
        # Without them this block has no loss.
        whole = {n: t for n, t in whole.items() if n not in ("current_log_probs", "advantages")}
    parts = [part for part in np.array_split(rows, 1 + len(rows) // 9) if len(part)]
    return [(part, {n: t[part] for n, t in whole.items()}) for part in parts]


def run(method: cw.Method, rows: np.ndarray, group: Any) -> dict[str, Any]:
    out = {name: torch.zeros((ROWS, WIDTH)) for name in ("weights", "keep_mask", "gradient")}
    parts = micro_batches(rows, method)
    with cw.Client("local:?threads=1") as client:
        step = Step(client, method, group=group, loss_metrics=True)
        for _, part in parts:
            step.add(**part)
        totals = step.reduce()
        for at, part in parts:
            result = step.finish(**part)
            for name, all_rows in out.items():
                tensor = getattr(result, name)
                if tensor is not None:
                    all_rows[at] = tensor.float()
        closed = step.close()
    return {
        **{name: tensor.numpy() for name, tensor in out.items()},
        "totals": (totals.metrics, totals.rules, totals.counts),
        "closed": (closed.metrics, closed.rules, closed.loss),
    }


def rank(world: int, me: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", world_size=world, rank=me
    )
    group = torch.distributed.group.WORLD
    answers = {name: run(m, shares(world)[me], group) for name, m in METHODS.items()}
    with open(f"{folder}/{me}", "wb") as out:
        pickle.dump(answers, out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def on_ranks(world: int, rank: Callable[[int, int, str], None] = rank) -> list[dict[str, Any]]:
    """Calls ``rank`` in that many processes, and returns what each wrote into its file."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for me in range(world):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    torch.set_num_threads(1)
                    rank(world, me, folder)
                    code = 0
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            sys.exit("a rank failed")
        return [pickle.load(open(f"{folder}/{me}", "rb")) for me in range(world)]


def main() -> None:
    answers = {world: on_ranks(world) for world in map(int, sys.argv[2:])}
    with open(sys.argv[1], "wb") as out:
        pickle.dump(answers, out)


if __name__ == "__main__":
    main()
