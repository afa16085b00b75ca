"""The processes that train on rows of a step."""

from __future__ import annotations

import sys

_MEGATRON = "megatron.core.parallel_state"


def reports_of_a_step() -> int:
    """Returns how many processes report a step; 0 if this one's rows are another one's too.

    It asks no other process. With Megatron these are the data-parallel ranks: the first tensor- and
    context-parallel rank of each, as all of them compute the loss of the same rows. Else it is
    every rank of torch.distributed, and this process alone without it.
    """
    megatron = sys.modules.get(_MEGATRON)
    if megatron is not None and megatron.model_parallel_is_initialized():
        if megatron.get_tensor_model_parallel_rank() or megatron.get_context_parallel_rank():
            return 0
        return int(megatron.get_data_parallel_world_size())
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return int(distributed.get_world_size())
