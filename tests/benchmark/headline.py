"""The work of the design's targets as verl's block: token weights truncated at 2, and rules on each
token's ratio, on a sequence's mean ratio and on its largest k3.

headline_spec.cc has the same numbers.
"""

from __future__ import annotations

UPPER = 2.0
# verl compares minus the log ratio with the logs of the bounds; reciprocal bounds make that equal.
TOKEN_BOUNDS = (0.5, 2.0)
MEAN_BOUNDS = (0.98, 1 / 0.98)
MAX_K3 = 0.5
VERL_BLOCK = {
    "rollout_is": "token",
    "rollout_is_threshold": UPPER,
    "rollout_rs": "token_k1,seq_mean_k1,seq_max_k3",
    "rollout_rs_threshold": ",".join(
        (
            f"{TOKEN_BOUNDS[0]}_{TOKEN_BOUNDS[1]}",
            f"{MEAN_BOUNDS[0]}_{MEAN_BOUNDS[1]}",
            f"{MAX_K3}",
        )
    ),
}
