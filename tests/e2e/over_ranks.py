"""Asks for one batch on 1, 2 and 3 processes of torch.distributed, and pickles what each rank has.

Usage: over_ranks.py FILE WORLD...
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed
from batches import padded_batch
from counterweight_rl import compat
from counterweight_rl.compat import trl, verl
from distributed_steps import on_ranks

ROWS, WIDTH = 23, 80
BLOCKS: dict[str, dict[str, Any]] = {
    "normalized": {
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
        "rollout_is_batch_normalize": True,
        "rollout_rs": "token_k1",
        "rollout_rs_threshold": "0.5_2.0",
    },
    "icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"},
    "sequences": {"rollout_is": "sequence", "rollout_is_batch_normalize": True},
    "metrics": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.1"},
}
MODES = ("token_truncate", "sequence_mask")


def shares(world: int) -> list[Any]:
    """The rows of each rank: ragged, out of order, the second of three empty."""
    order = np.random.default_rng(world).permutation(ROWS)
    cuts = {1: [], 2: [5], 3: [9, 9]}[world]
    return np.split(order, cuts)


def answers(rows: Any) -> dict[str, Any]:
    """Returns the weights and masks of these rows among zeros, and all metrics."""
    made = padded_batch(ROWS, WIDTH, spread=0.2, seed=3)
    old, rollout, mask = (
        torch.from_numpy(made[name][rows])
        for name in ("old_log_probs", "rollout_log_probs", "response_mask")
    )
    found: dict[str, Any] = {}
    for name, block in BLOCKS.items():
        weights, kept, metrics = verl.compute_rollout_correction_and_rejection_mask(
            old, rollout, mask, **block
        )
        tensors = {"keep_mask": kept}
        if weights is not None:
            tensors["weights"] = weights.batch["rollout_is_weights"]
        found[name] = {n: spread(tensor, rows) for n, tensor in tensors.items()}, metrics
    for mode in MODES:
        ratio, metrics = trl.vllm_importance_sampling_ratio(
            old, rollout, mask, vllm_importance_sampling_mode=mode
        )
        found[mode] = {"ratio": spread(ratio, rows)}, metrics
    return found


def spread(tensor: torch.Tensor, rows: Any) -> Any:
    everywhere = np.zeros((ROWS, tensor.shape[1]), np.float32)
    everywhere[rows] = tensor.float().numpy()
    return everywhere


def rank(world: int, me: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", world_size=world, rank=me
    )
    group = torch.distributed.group.WORLD if me % 2 else True
    compat.use(target="local:?threads=1", over_ranks=group)
    with open(f"{folder}/{me}", "wb") as out:
        pickle.dump(answers(shares(world)[me]), out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> None:
    found = {world: on_ranks(world, rank) for world in map(int, sys.argv[2:])}
    with open(sys.argv[1], "wb") as out:
        pickle.dump(found, out)


if __name__ == "__main__":
    main()
