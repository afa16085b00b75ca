"""Other systems' own functions, with their names, arguments and return types; the server computes.

    # from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from counterweight_rl.compat.verl import compute_rollout_correction_and_add_to_batch

There is one module per system: ``verl``, ``trl``, ``skyrl``, ``openrlhf``, ``nemo_rl``, ``slime``,
``miles``, ``ms_swift``, ``areal``, ``roll``, ``prime_rl``; each needs torch. The modules hold no
mathematics but for metrics of single tokens: arguments become a ``Dialect`` block and the tensors
of a request, and the answer becomes the original's return value. All of them differ from the
originals as follows:

* Positions with mask 0 are never read; a NaN there, which the originals let through, has no
  effect.
* A NaN or infinity where the mask is 1 is an InvalidRequestError instead of a NaN in the loss, or
  is dropped or neutralized (below).
* The arithmetic is the service's whatever the inputs' dtype: float32 per token, float64 sums.
* A wrong setting is an InvalidRequestError, which is a ValueError, and lists every wrong field; the
  originals raise ValueError, TypeError or AssertionError about the first one.
* The server's warnings about a request become Python warnings.

The originals have no argument for a server. These functions call the server of the environment
(``COUNTERWEIGHT_TARGET``, ...), or of the argument of ``use``, whose documentation defines each
setting; client/python/README.md has the variables.

A server that is away for less than a minute therefore causes a pause and does not end the run.

Other names that share an import line with a name of this package are the originals themselves,
imported from their own module on first use.
"""

from counterweight_rl.compat._service import client, reports_dropped, use

__all__ = ["client", "reports_dropped", "use"]
