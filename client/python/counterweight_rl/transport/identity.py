"""The answer that corrects nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterweight_rl import presets
from counterweight_rl.arrays.batch import role_name
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.arrays.output_array import OutputArray
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.correction import Correction
from counterweight_rl.result import Result, Timing

BACKEND = "identity"
"""The ``Result.backend`` of such an answer."""
_WARNING = "the server is away: nothing was corrected, nothing rejected and no metric computed"


_OF_LOSS = {"current_log_probs", "advantages"}


def identity(correction: Correction[Any]) -> Result[Any] | None:
    """Weight 1 for each token of the mask, the mask as it was sent, no rule and no metric.

    None if a loss is requested: without the method there is none, and 0 would be read as one.
    """
    requested, batch = correction.requested, correction.batch
    if _may_have_loss(correction):
        return None
    mask = next(
        np.frombuffer(tensor.data, np.uint8)
        for tensor in batch.tensors
        if role_name(tensor.role) == MASK
    )
    reasons = np.zeros(mask.size, "<u2")
    contents = {
        "weights": mask.astype("<f4"),
        "keep_mask": mask,
        "token_reasons": reasons,
        "sequence_reasons": np.zeros(batch.num_sequences, "<u2"),
    }
    transfers = Transfers()
    arrays = {}
    for name in requested.arrays:
        if name in contents:
            destination = correction.destinations.get(name)
            output = OutputArray(name, batch, destination, transfers)
            output.fill(contents[name].view(np.uint8).data)
            arrays[name] = output.array
    transfers.wait()
    arrays = {name: batch.as_sent(name, array) for name, array in arrays.items()}
    if not requested.keep_mask:
        arrays.pop("keep_mask", None)
    return Result(
        weights=arrays.get("weights"),
        keep_mask=arrays.get("keep_mask"),
        token_reasons=arrays.get("token_reasons"),
        sequence_reasons=arrays.get("sequence_reasons"),
        loss=None,
        gradient=None,
        metrics={},
        rules=(),
        non_finite_tokens=0,
        warnings=(_WARNING,),
        request_id=correction.head["request_id"],
        numerics_version=0,
        backend=BACKEND,
        timing=Timing(0.0, 0.0, 0.0, 0.0),
    )


def _may_have_loss(correction: Correction[Any]) -> bool:
    """Whether the server would answer with a loss.

    By default it computes the method's where a request has what it is made of. Of another system's
    block only the server knows whether it has one.
    """
    requested = correction.requested
    ((kind, config),) = correction.head["method"].items()
    if requested.compute_loss or "gradient" in requested.role_names or "policy_loss" in config:
        return True
    given = {role_name(tensor.role) for tensor in correction.batch.tensors}
    if requested.roles or not given >= _OF_LOSS:
        return False
    return kind == "dialect" or (kind == "preset" and config["name"] in presets.WITH_LOSS)
