"""A trainer's step over micro-batches and ranks: the numbers of one batch, however it is cut."""

from counterweight_rl.distributed.context_rows import ContextRows
from counterweight_rl.distributed.step import Step

__all__ = ["ContextRows", "Step"]
