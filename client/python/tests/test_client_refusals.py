"""Refusals of the client before it sends anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import (
    MASK,
    OLD,
    ROLLOUT,
    correct,
    sent,
)

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"old_log_probs": [[1.0]]},
            "old_log_probs must be a numpy array or a torch tensor, or have the buffer protocol or "
            "__dlpack__, not list",
        ),
        ({"response_mask": None}, "response_mask must be .* not NoneType"),
        ({"old_log_probs": MASK}, "old_log_probs must be float32, .* not uint8"),
        ({"old_log_probs": OLD.astype(complex)}, "old_log_probs must be .* not complex128"),
        ({"response_mask": MASK.astype(str)}, "response_mask must be boolean, .* not <U3"),
        ({"group_ids": [1.5, 2]}, "group_ids must be"),
        ({"sequence_lengths": ["3"]}, None),
        ({"outputs": "weights"}, "outputs must be a sequence"),
        ({"method": None}, "method must be"),
    ],
)
def test_type_errors_name_the_argument(
    client: cw.Client, change: dict[str, Any], message: str | None
) -> None:
    if "sequence_lengths" in change:
        flat = {"rollout_log_probs": ROLLOUT[0], "old_log_probs": OLD[0], "response_mask": MASK[0]}
        change = {**change, **flat}
        message = "sequence_lengths must be"
    with pytest.raises(TypeError, match=message):
        correct(client, **change)


def test_shapes_are_all_reported(server: FakeServer, client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(
            client,
            rollout_log_probs=ROLLOUT[:1],
            old_log_probs=OLD[0],
            padded_length=3,
        )
    assert [v.field for v in caught.value.violations] == [
        "old_log_probs",
        "rollout_log_probs",
        "padded_length",
    ]
    assert "(1, 3), but response_mask has (2, 3)" in str(caught.value)
    assert server.requests == []


def test_negative_lengths_cannot_spread_advantages(server: FakeServer, client: cw.Client) -> None:
    """With one advantage per sequence the refusal is that of other shapes, not an error of
    numpy."""
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(
            client,
            rollout_log_probs=ROLLOUT[0],
            old_log_probs=OLD[0],
            response_mask=MASK[0],
            advantages=np.ones(2, np.float32),
            sequence_lengths=[-1, 4],
        )
    assert [v.field for v in caught.value.violations] == ["advantages"]
    assert server.requests == []


def test_packed_arrays_must_be_flat(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, sequence_lengths=[3, 3])
    assert [v.field for v in caught.value.violations] == [
        "rollout_log_probs",
        "old_log_probs",
        "response_mask",
    ]


@pytest.mark.parametrize("bad", [2, -1, 256, 0.5, float("nan")])
def test_masks_that_a_byte_would_hide_are_refused(client: cw.Client, bad: float) -> None:
    mask = MASK.astype(np.float64 if isinstance(bad, float) else np.int64)
    mask[0, 0] = bad
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, response_mask=mask)
    assert caught.value.violations == [cw.Violation("response_mask", "must hold only 0 and 1")]


@pytest.mark.parametrize("shape", [(3,), (1, 2), (3, 1), ()])
def test_advantages_of_other_shapes_are_refused(client: cw.Client, shape: tuple[int, ...]) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, advantages=np.zeros(shape, np.float32))
    assert [v.field for v in caught.value.violations] == ["advantages"]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"num_tokens": 3}, "global_counts must be a GlobalCounts, not dict"),
        (cw.GlobalCounts(num_tokens=1.5), r"global_counts\.num_tokens must be an int, not float"),  # type: ignore[arg-type]
    ],
)
def test_global_counts_of_wrong_types(client: cw.Client, counts: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        correct(client, global_counts=counts)


def test_unknown_outputs(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, outputs=("weights", "mask"))
    assert caught.value.violations[0].field == "outputs[1]"
    assert "sequence_reasons, gradient, loss" in caught.value.violations[0].description
    with pytest.raises(cw.InvalidRequestError):
        correct(client, outputs=())
    with pytest.raises(ValueError, match="non_finite must be one of reject, drop, neutralize"):
        correct(client, non_finite="ignore")


def test_unknown_names_are_told_the_nearest(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, outputs=("weigths", "KEEP_MASK", "nothing", 3))
    assert [v.description.partition("; got ")[2] for v in caught.value.violations] == [
        "'weigths'; did you mean 'weights'?",
        "'KEEP_MASK'; did you mean 'keep_mask'?",
        "'nothing'",
        "3",
    ]
    with pytest.raises(
        cw.InvalidRequestError, match=r"out\['weigth'\].*; did you mean 'weights'\?"
    ):
        correct(client, out={"weigth": ROLLOUT})
    with pytest.raises(ValueError, match=r"got 'dropp'; did you mean 'drop'\?"):
        correct(client, non_finite="dropp")
    loss = cw.PolicyLoss(
        surrogate="ppo_clp",  # type: ignore[arg-type]
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.KEPT,
    )
    with pytest.raises(ValueError, match=r"surrogate must .* 'ppo_clp'; did you mean 'ppo_clip'\?"):
        correct(client, method=cw.CorrectionConfig(policy_loss=loss))
    with pytest.raises(ValueError, match=r"got 'steam'; did you mean 'stream'\?"):
        cw.Client("localhost:1", transport="steam")  # type: ignore[arg-type]


def test_long_names_are_compared_with_nothing(client: cw.Client) -> None:
    name = "weights" * 100_000
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, outputs=(name,))
    assert "did you mean" not in caught.value.violations[0].description


@pytest.mark.parametrize("lengths", [[2, 0, 1], [0, 3, 0], [3, 0, 0]])
def test_packed_advantages_that_fit_two_readings(client: cw.Client, lengths: list[int]) -> None:
    """Three sequences of three positions: one per token, or one per sequence?"""
    flat = {"rollout_log_probs": ROLLOUT[0], "old_log_probs": OLD[0], "response_mask": MASK[0]}
    advantages = np.array([1, 100, 5], np.float32)
    with pytest.raises(cw.InvalidRequestError, match=r"advantages: fit .* pass \[B, 1\]"):
        correct(client, **flat, advantages=advantages, sequence_lengths=lengths)


def test_packed_advantages_that_fit_one_reading(server: FakeServer, client: cw.Client) -> None:
    flat = {"rollout_log_probs": ROLLOUT[0], "old_log_probs": OLD[0], "response_mask": MASK[0]}
    advantages = np.array([1, 100, 5], np.float32)
    cases = [
        ([1, 1, 1], advantages, [1, 100, 5]),
        ([2, 0, 1], advantages[:, None], [1, 1, 5]),
        ([2, 1], advantages, [1, 100, 5]),
        ([2, 1], advantages[:2], [1, 1, 100]),
    ]
    for lengths, given, expected in cases:
        correct(client, **flat, advantages=given, sequence_lengths=lengths)
        tensor = sent(server.requests[-1], tensor_pb2.TENSOR_ROLE_ADVANTAGES)
        assert np.frombuffer(tensor.data, "<f4").tolist() == expected
