"""Answers into existing arrays; test_torch.py has torch's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, REASONS, SHAPE, WEIGHTS, answer, correct

import counterweight_rl as cw

ALL = ("weights", "keep_mask", "token_reasons", "sequence_reasons")


def refused(client: cw.Client, **arguments: Any) -> dict[str, str]:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, **arguments)
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize("mask_dtype", ["bool", "uint8", "int64", "float16", ">i4"])
def test_results_are_written_in_place(
    server: FakeServer, client: cw.Client, mask_dtype: str
) -> None:
    server.handler = answer
    mask = MASK.astype(mask_dtype)
    out = {
        "weights": np.full(SHAPE, np.nan, np.float32),
        "keep_mask": np.ones(SHAPE, mask.dtype),
        "token_reasons": np.full(SHAPE, 7, np.uint16),
        "sequence_reasons": np.full(2, 7, np.uint16),
    }
    result = correct(client, response_mask=mask, outputs=ALL, out=out)
    for name in ALL:
        assert getattr(result, name) is out[name]
    np.testing.assert_array_equal(out["weights"], WEIGHTS)
    np.testing.assert_array_equal(out["keep_mask"], mask)
    np.testing.assert_array_equal(out["token_reasons"], REASONS)
    np.testing.assert_array_equal(out["sequence_reasons"], [1, 0x8002])


def test_others_are_new_and_the_request_is_the_same(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    weights = np.zeros(SHAPE, np.float32)
    result = correct(client, out={"weights": weights}, request_id="mine")
    correct(client, request_id="mine")
    assert result.weights is weights
    np.testing.assert_array_equal(result.keep_mask, MASK)
    assert server.requests[0] == server.requests[1]


def test_an_input_may_be_an_output(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    old, mask = OLD.copy(), MASK.copy()
    result = correct(
        client, old_log_probs=old, response_mask=mask, out={"weights": old, "keep_mask": mask}
    )
    np.testing.assert_array_equal(old, WEIGHTS)
    assert result.keep_mask is mask


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.zeros((3, 2), np.float32), r"must have shape (2, 3); it has (3, 2)"),
        (np.zeros(6, np.float32), r"must have shape (2, 3); it has (6,)"),
        (np.zeros(SHAPE, np.float64), r"must have dtype float32; it has float64"),
        (np.zeros(SHAPE, ">f4"), r"must have dtype float32; it has >f4"),
        (np.zeros(SHAPE, np.float32, order="F"), r"must be C-contiguous"),
        (np.zeros((2, 6), np.float32)[:, ::2], r"must be C-contiguous"),
        (read_only(np.zeros(SHAPE, np.float32)), r"must be writable"),
        ([[0.0] * 3] * 2, r"must be a numpy array, as response_mask is; it is a list"),
        (None, r"must be a numpy array, as response_mask is; it is a NoneType"),
    ],
)
def test_what_cannot_take_the_answer_is_refused_before_it_is_sent(
    server: FakeServer, client: cw.Client, array: Any, problem: str
) -> None:
    assert refused(client, out={"weights": array}) == {"out['weights']": problem}
    assert server.requests == []


def test_all_that_is_wrong_at_once(server: FakeServer, client: cw.Client) -> None:
    array = read_only(np.zeros((1, 4), np.float64)[:, ::2])
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, out={"weights": array, "keep_mask": array, "loss": array})
    assert [violation.field for violation in caught.value.violations] == [
        *["out['weights']"] * 4,
        *["out['keep_mask']"] * 4,
        "out['loss']",
    ]
    assert server.requests == []


@pytest.mark.parametrize(
    ("outputs", "name"),
    [(None, "token_reasons"), (("weights",), "keep_mask"), (("loss",), "keep_mask")],
)
def test_what_is_not_asked_for(client: cw.Client, outputs: Any, name: str) -> None:
    found = refused(client, outputs=outputs, out={name: np.zeros(SHAPE, np.uint8)})
    assert found == {f"out['{name}']": "is not asked for; name it in outputs"}


def halves() -> tuple[Any, Any]:
    flat = np.zeros(9, np.float32)
    return flat[:6].reshape(SHAPE), flat[3:].reshape(SHAPE)


def same() -> tuple[Any, Any]:
    array = np.zeros(SHAPE, np.float32)
    return array, array


@pytest.mark.parametrize("arrays", [halves, same])
def test_two_outputs_in_one_place(client: cw.Client, arrays: Callable[[], tuple[Any, Any]]) -> None:
    weights, gradient = arrays()
    found = refused(client, out={"weights": weights, "gradient": gradient})
    assert len(found) == 1
    assert "shares memory with out[" in next(iter(found.values()))


def test_what_the_method_does_not_have_is_an_error(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer  # without a gradient
    gradient = np.full(SHAPE, 3, np.float32)
    weights = np.full(SHAPE, 3, np.float32)
    found = refused(client, out={"weights": weights, "gradient": gradient})
    assert found == {"out['gradient']": "the method has no such output"}
    assert (weights == 3).all()


def test_out_is_a_mapping(client: cw.Client) -> None:
    with pytest.raises(TypeError, match="out must be a mapping of outputs to arrays, not list"):
        correct(client, out=[np.zeros(SHAPE, np.float32)])


def test_empty_batches(server: FakeServer, client: cw.Client) -> None:
    server.handler = lambda request, _: type(answer(request, None))(
        tensors=[
            {"role": "TENSOR_ROLE_WEIGHTS", "dtype": "D_TYPE_F32"},
            {"role": "TENSOR_ROLE_KEEP_MASK", "dtype": "D_TYPE_U8"},
        ]
    )
    empty = np.zeros((0, 3), np.float32)
    out = {"weights": empty.copy(), "keep_mask": empty.astype(bool)}
    result = correct(
        client,
        rollout_log_probs=empty,
        old_log_probs=empty,
        response_mask=empty.astype(bool),
        out=out,
    )
    assert result.weights is out["weights"]
