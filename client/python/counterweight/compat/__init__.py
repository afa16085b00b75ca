"""Other systems' own functions: names, arguments and return types are theirs, numbers the server's.

    # from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from counterweight.compat.verl import compute_rollout_correction_and_add_to_batch

One module per system: ``verl``, ``trl``, ``skyrl``, ``openrlhf``; each needs torch. They hold no
mathematics: arguments become a ``Dialect`` block and the tensors of a request, the answer becomes
what the original returns. What differs in all of them:

* Positions whose mask is 0 are never read; what the originals let through from there (NaN) stays
  out.
* A NaN or infinity where the mask is 1 is an InvalidRequestError instead of a NaN in the loss.
* The arithmetic is the service's whatever the inputs' dtype: float32 per token, float64 sums.
* A wrong setting is an InvalidRequestError that lists every wrong field, where the originals raise
  ValueError, TypeError or AssertionError about the first one.
* What the server has to say about a request becomes a Python warning.

The originals have no argument for a server. These functions ask the one at the environment variable
``COUNTERWEIGHT_TARGET`` (default ``localhost:50051``), or the client given to ``use``.
"""

from counterweight.compat._service import client, use

__all__ = ["client", "use"]
