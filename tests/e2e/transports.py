"""Batches for several transports, and the comparison of their answers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
from batches import packed, padded_batch

ARRAYS = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")
LOSS = cw.CorrectionConfig(
    importance_weight=cw.ImportanceWeight(
        ratio_source=cw.RatioSource.OLD_ROLLOUT,
        level=cw.Level.TOKEN,
        bound=cw.Bound.TRUNCATE,
        upper=2.0,
    ),
    rules=[
        cw.RejectionRule(
            ratio_source=cw.RatioSource.OLD_ROLLOUT,
            estimator=cw.Estimator.K3,
            aggregation=cw.Aggregation.MEAN,
            upper=0.05,
        )
    ],
    policy_loss=cw.PolicyLoss(
        surrogate=cw.Surrogate.PPO_CLIP,
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.ORIGINAL,
        clip_low=0.2,
        clip_high=0.2,
    ),
)
SMALL: dict[str, dict[str, Any]] = {
    "padded": padded_batch(),
    "packed": packed(padded_batch(8, 32, seed=2)),
    "one": padded_batch(1, 1, seed=3),
    "none": {name: array[:0] for name, array in padded_batch(1, 5).items()},
    "half": {
        name: array.astype(np.float16) if array.dtype == np.float32 else array.astype(bool)
        for name, array in padded_batch(5, 90, seed=4).items()
    },
}
LARGE: dict[str, dict[str, Any]] = {
    "wide": padded_batch(40, 9000, seed=5),
    "long packed": packed(padded_batch(300, 2000, spread=1.0, seed=6)),
}


def assert_same(result: cw.Result[Any], expected: cw.Result[Any]) -> None:
    """Compares everything but times byte for byte."""
    for name in ARRAYS:
        a, b = getattr(result, name), getattr(expected, name)
        assert type(a) is type(b), name
        if a is not None:
            assert (a.dtype, tuple(a.shape)) == (b.dtype, tuple(b.shape)), name
            assert bytes_of(a) == bytes_of(b), name
    for name in ("loss", "metrics", "rules", "non_finite_tokens", "warnings", "backend"):
        np.testing.assert_equal(getattr(result, name), getattr(expected, name), err_msg=name)
    assert result.numerics_version == expected.numerics_version


def bytes_of(array: Any) -> bytes:
    return bytes((array if isinstance(array, np.ndarray) else array.numpy()).tobytes())
