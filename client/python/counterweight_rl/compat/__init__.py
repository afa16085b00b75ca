"""Other systems' own functions: names, arguments and return types are theirs, numbers the server's.

    # from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from counterweight_rl.compat.verl import compute_rollout_correction_and_add_to_batch

One module per system: ``verl``, ``trl``, ``skyrl``, ``openrlhf``; each needs torch. They hold no
mathematics: arguments become a ``Dialect`` block and the tensors of a request, the answer becomes
what the original returns. What differs in all of them:

* Positions whose mask is 0 are never read; what the originals let through from there (NaN) stays
  out.
* A NaN or infinity where the mask is 1 is an InvalidRequestError instead of a NaN in the loss, or
  is dropped or neutralized (below).
* The arithmetic is the service's whatever the inputs' dtype: float32 per token, float64 sums.
* A wrong setting is an InvalidRequestError, which is a ValueError, and lists every wrong field; the
  originals raise ValueError, TypeError or AssertionError about the first one.
* What the server has to say about a request becomes a Python warning.

The originals have no argument for a server. These functions ask the one that the environment names,
or ``use``, whose documentation says what each of these means:

* ``COUNTERWEIGHT_TARGET``, where the server is: ``localhost:50051``;
* ``COUNTERWEIGHT_RUN``, the label of the drift metrics: none;
* ``COUNTERWEIGHT_TIMEOUT``, seconds that a call may take, retries included: 120;
* ``COUNTERWEIGHT_RETRY_SECONDS``, seconds within which a call is tried again: 60;
* ``COUNTERWEIGHT_NON_FINITE``, what to do about a NaN or infinity where the mask is 1: ``reject``.

So a server that is away for less than a minute costs a pause and not the run.

Names that this package does not have, but that share an import line with one that it has, are the
originals themselves, imported from their own module when they are asked for.
"""

from counterweight_rl.compat._service import client, use

__all__ = ["client", "use"]
