"""One of two ranks that share every sample: miles' slices of losses, corrected by the hook.

Usage: miles_context_parallel.py RANK STORE, where STORE is a file that both ranks name. It prints
the sum of this rank's corrected losses and that of the whole batch on one rank.
"""

from __future__ import annotations

import sys

import releases

releases.activate_release()

import torch  # noqa: E402
import torch.distributed.nn  # noqa: E402
from counterweight_rl.hooks import miles as hook  # noqa: E402
from megatron_trainer import batch  # noqa: E402
from miles.backends.training_utils import cp_utils, parallel  # noqa: E402
from test_miles_hook import AT_HEAD, arguments  # noqa: E402

RANKS = 2
NAMES = ("intra_dp", "intra_dp_cp", "tp", "pp", "ep", "etp", *(("indep_dp",) if AT_HEAD else ()))


def main(rank: int, store: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    one = parallel.GroupInfo(rank=0, size=1, group=None)
    both = parallel.GroupInfo(rank=rank, size=RANKS, group=torch.distributed.group.WORLD)
    _, data = batch()
    lengths = data["total_lengths"], data["response_lengths"]
    args = arguments()
    # A rule by samples, so that a part of one would give another answer.
    args.counterweight_method = {
        "dialect": "verl",
        **{"rollout_is": "sequence", "rollout_is_threshold": 1.3},
        **{"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.04},
    }
    losses = torch.arange(1.0, 1.0 + sum(lengths[1]))
    sums = []
    for context in (one, both):
        state = parallel.ParallelState(cp=context, **dict.fromkeys(NAMES, one))
        parallel.set_parallel_state(state)

        def part(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            places = zip(tensors, *lengths, strict=True)
            return [cp_utils.slice_log_prob_with_cp(*place) for place in places]

        loss, masks, metrics = hook.correct(
            args,
            pg_loss=torch.cat(part(list(losses.split(lengths[1])))),
            train_log_probs=part(data["log_probs"]),
            rollout_log_probs=part(data["rollout_log_probs"]),
            loss_masks=data["loss_masks"],
            total_lengths=lengths[0],
            response_lengths=lengths[1],
            parallel_state=state,
        )
        reduce = cp_utils.get_sum_of_sample_mean(*lengths, masks)
        dropped = cp_utils.get_sum_of_sample_mean(*lengths, data["loss_masks"])
        totals = torch.stack([reduce(loss), dropped(metrics["counterweight_dropped"])])
        if context is both:
            assert 0 < len(loss) < len(losses)
            torch.distributed.all_reduce(totals)
        sums.append(totals.tolist())
    print(sums)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
