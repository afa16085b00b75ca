"""The client's requests, and the results that it makes of answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import (
    MASK,
    OLD,
    REASONS,
    ROLLOUT,
    SHAPE,
    WEIGHTS,
    Request,
    Response,
    answer,
    correct,
    sent,
)

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import method_pb2, tensor_pb2


def test_padded_request(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    correct(
        client,
        current_log_probs=OLD * 2,
        ref_log_probs=OLD * 3,
        advantages=OLD * 4,
        method=cw.Preset("token_tis", upper=3.0),
        outputs=("keep_mask", "sequence_reasons"),
        run="run-1",
        replica="r0",
        policy_version=0,
        request_id="mine",
        non_finite="drop",
        seed=0,
        global_counts=cw.GlobalCounts(num_tokens=100, num_ranks=4, weight_sum=90.5),
        group_ids=np.array([5, -6]),
        metrics=False,
    )
    (request,) = server.requests
    expected = Request(
        request_id="mine",
        labels=service_pb2.Labels(run="run-1", replica="r0", policy_version=0),
        layout=tensor_pb2.Layout(padded=tensor_pb2.PaddedLayout(num_sequences=2, length=3)),
        method=method_pb2.Method(
            preset=method_pb2.Preset(name="token_tis", parameters={"upper": 3.0})
        ),
        outputs=["TENSOR_ROLE_KEEP_MASK", "TENSOR_ROLE_SEQUENCE_REASONS"],
        non_finite_policy="NON_FINITE_POLICY_DROP",
        seed=0,
        global_counts=service_pb2.GlobalCounts(num_tokens=100, num_ranks=4, weight_sum=90.5),
        group_ids=[5, -6],
        omit_metrics=True,
    )
    for role, array in [
        ("ROLLOUT_LOG_PROBS", ROLLOUT),
        ("OLD_LOG_PROBS", OLD),
        ("CURRENT_LOG_PROBS", OLD * 2),
        ("REF_LOG_PROBS", OLD * 3),
        ("ADVANTAGES", OLD * 4),
        ("RESPONSE_MASK", MASK),
    ]:
        dtype = "D_TYPE_U8" if role == "RESPONSE_MASK" else "D_TYPE_F32"
        expected.tensors.add(role=f"TENSOR_ROLE_{role}", dtype=dtype, data=array.tobytes())
    assert request == expected
    assert server.metadata[0]["user-agent"].startswith(f"counterweight-python/{cw.__version__}")


def test_defaults_are_absent(server: FakeServer, client: cw.Client) -> None:
    correct(client)
    correct(client)
    first, second = server.requests
    assert not first.HasField("labels")
    assert not first.HasField("seed")
    assert not first.HasField("global_counts")
    assert not first.compute_loss
    assert not first.omit_metrics
    assert list(first.outputs) == []
    assert first.non_finite_policy == tensor_pb2.NON_FINITE_POLICY_REJECT
    # Each call has a fresh request_id, so that the server takes none for a retry.
    assert re.fullmatch("[0-9a-f]{32}", first.request_id)
    assert first.request_id != second.request_id


def test_metrics_are_wanted_or_not(client: cw.Client) -> None:
    with pytest.raises(TypeError, match="metrics must be a bool, not str"):
        correct(client, metrics="none")


def test_packed_request(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    result = correct(
        client,
        rollout_log_probs=ROLLOUT.reshape(-1),
        old_log_probs=OLD.reshape(-1),
        response_mask=MASK.reshape(-1),
        sequence_lengths=np.array([6, 0]),
        padded_length=8,
    )
    layout = server.requests[0].layout
    assert layout.packed == tensor_pb2.PackedLayout(sequence_lengths=[6, 0], padded_length=8)
    assert result.weights.shape == (6,)
    assert result.sequence_reasons.shape == (2,)


def test_packed_without_sequences_is_packed(server: FakeServer, client: cw.Client) -> None:
    empty = np.zeros(0, np.float32)
    correct(
        client,
        rollout_log_probs=empty,
        old_log_probs=empty,
        response_mask=empty,
        sequence_lengths=[],
    )
    assert server.requests[0].layout.WhichOneof("layout") == "packed"


def test_result(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    result = correct(client, request_id="mine")
    np.testing.assert_array_equal(result.weights, WEIGHTS)
    np.testing.assert_array_equal(result.keep_mask, MASK)
    np.testing.assert_array_equal(result.token_reasons, REASONS)
    np.testing.assert_array_equal(result.sequence_reasons, [1, 0x8002])
    assert result.weights.dtype == np.float32
    assert result.token_reasons.dtype == result.sequence_reasons.dtype == np.uint16
    for array in (result.weights, result.keep_mask, result.token_reasons):
        assert array.flags.writeable
    assert result.loss is None
    assert result.gradient is None
    assert result.metrics == {"kl": 0.25}
    assert result.rules == (cw.RuleSummary("mean_k3", 2, 1),)
    assert result.non_finite_tokens == 1
    assert result.warnings == ("beware",)
    assert result.request_id == "mine"
    assert result.numerics_version == 7
    assert result.backend == "cpu"
    assert result.timing == cw.Timing(0.0, 0.0, 0.5, 0.0)


def test_what_was_not_answered_is_none(server: FakeServer, client: cw.Client) -> None:
    server.handler = lambda request, _: Response(loss=float("nan"))
    result = correct(client)
    assert result.weights is None
    assert result.keep_mask is None
    assert result.loss is not None
    assert np.isnan(result.loss)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64", ">i4"]
)
def test_keep_mask_has_the_masks_dtype(server: FakeServer, client: cw.Client, dtype: str) -> None:
    server.handler = answer
    mask = MASK.astype(dtype)
    result = correct(client, response_mask=mask)
    assert result.keep_mask.dtype == mask.dtype
    np.testing.assert_array_equal(result.keep_mask, mask)
    assert sent(server.requests[0], tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data == MASK.tobytes()


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (lambda a: a.astype(np.float16), "D_TYPE_F16"),
        (lambda a: a.astype(np.float64), "D_TYPE_F32"),
        (lambda a: a.astype(">f4"), "D_TYPE_F32"),
        (np.asfortranarray, "D_TYPE_F32"),
        (lambda a: np.repeat(a, 2, axis=1)[:, ::2], "D_TYPE_F32"),
        (lambda a: np.broadcast_to(a, (1, *SHAPE))[0], "D_TYPE_F32"),
    ],
    ids=["float16", "float64", "big-endian", "fortran", "strided", "read-only"],
)
def test_log_probs_of_other_kinds(
    server: FakeServer, client: cw.Client, convert: Callable[[Any], Any], dtype: str
) -> None:
    correct(client, rollout_log_probs=convert(ROLLOUT))
    tensor = sent(server.requests[0], tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS)
    assert tensor_pb2.DType.Name(tensor.dtype) == dtype
    numpy_dtype = "<f2" if dtype == "D_TYPE_F16" else "<f4"
    np.testing.assert_array_equal(np.frombuffer(tensor.data, numpy_dtype).reshape(SHAPE), ROLLOUT)


def test_float64_beyond_float32_becomes_infinite_silently(
    server: FakeServer, client: cw.Client
) -> None:
    correct(client, rollout_log_probs=np.full(SHAPE, -1e300))
    tensor = sent(server.requests[0], tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS)
    assert np.isneginf(np.frombuffer(tensor.data, "<f4")).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_batches(server: FakeServer, client: cw.Client, shape: tuple[int, int]) -> None:
    server.handler = lambda request, _: Response(
        tensors=[
            tensor_pb2.Tensor(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32"),
            tensor_pb2.Tensor(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8"),
        ]
    )
    array = np.zeros(shape, np.float32)
    result = correct(
        client, rollout_log_probs=array, old_log_probs=array, response_mask=array.astype(bool)
    )
    padded = server.requests[0].layout.padded
    assert (padded.num_sequences, padded.length) == shape
    assert result.weights.shape == result.keep_mask.shape == shape


def test_contiguous_arrays_are_not_copied_before_the_join() -> None:
    from counterweight_rl.arrays.batch import read_batch

    mask = MASK.astype(bool)
    batch = read_batch({"rollout_log_probs": ROLLOUT}, mask, None, None)
    for tensor, array in zip(batch.tensors, (ROLLOUT, mask), strict=True):
        assert np.shares_memory(np.frombuffer(tensor.data, np.uint8), array)


CONFIG = cw.CorrectionConfig()


@pytest.mark.parametrize(
    ("method", "inputs", "outputs", "roles", "compute_loss"),
    [
        # By default the server decides which tensors, and whether a config or preset has a loss.
        ("token_tis", ("current_log_probs", "advantages"), None, [], False),
        (CONFIG, ("current_log_probs", "advantages"), None, [], False),
        # A dialect's loss is requested if the inputs of every loss are given.
        (cw.Dialect("verl"), ("current_log_probs", "advantages"), None, [], True),
        (cw.Dialect("verl"), ("current_log_probs",), None, [], False),
        (cw.Dialect("verl"), ("advantages",), None, [], False),
        # The named outputs are requested, and no others.
        (cw.Dialect("verl"), ("current_log_probs", "advantages"), ["weights"], ["WEIGHTS"], False),
        (cw.Dialect("verl"), (), ["gradient", "loss"], ["GRADIENT"], True),
        (cw.Dialect("verl"), (), ["loss"], ["KEEP_MASK"], True),
        (CONFIG, (), ["loss", "weights"], ["WEIGHTS"], True),
    ],
)
def test_what_is_asked_for(
    server: FakeServer,
    client: cw.Client,
    method: cw.Method,
    inputs: tuple[str, ...],
    outputs: list[str] | None,
    roles: list[str],
    compute_loss: bool,
) -> None:
    server.handler = answer
    correct(client, method=method, outputs=outputs, **dict.fromkeys(inputs, OLD))
    (request,) = server.requests
    names = [tensor_pb2.TensorRole.Name(role) for role in request.outputs]
    assert names == [f"TENSOR_ROLE_{role}" for role in roles]
    assert request.compute_loss is compute_loss


def test_loss_and_gradient(server: FakeServer, client: cw.Client) -> None:
    gradient = WEIGHTS * 2

    def with_loss(request: Request, context: Any) -> Response:
        response = answer(request, context)
        response.loss = -0.125
        if not request.outputs:
            response.tensors.add(
                role="TENSOR_ROLE_GRADIENT", dtype="D_TYPE_F32", data=gradient.tobytes()
            )
        return response

    server.handler = with_loss
    result = correct(client, method=cw.Dialect("verl"), current_log_probs=OLD, advantages=OLD)
    assert result.loss == -0.125
    np.testing.assert_array_equal(result.gradient, gradient)
    np.testing.assert_array_equal(result.weights, WEIGHTS)
    # A keep mask that replaces an empty list of outputs does not reach the caller.
    alone = correct(client, method=cw.Dialect("verl"), outputs=("loss",))
    assert alone.loss == -0.125
    assert alone.keep_mask is None


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_advantages_of_one_per_sequence(
    server: FakeServer, client: cw.Client, shape: tuple[int, ...]
) -> None:
    per_row = np.array([1.5, -2.0], np.float32).reshape(shape)
    correct(client, advantages=per_row)
    flat = {"rollout_log_probs": ROLLOUT, "old_log_probs": OLD, "response_mask": MASK}
    correct(
        client,
        advantages=per_row,
        sequence_lengths=[4, 2],
        **{name: array.reshape(-1) for name, array in flat.items()},
    )
    padded, packed = (
        np.frombuffer(sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES).data, "<f4")
        for request in server.requests
    )
    np.testing.assert_array_equal(padded, [1.5, 1.5, 1.5, -2, -2, -2])
    np.testing.assert_array_equal(packed, [1.5, 1.5, 1.5, 1.5, -2, -2])
