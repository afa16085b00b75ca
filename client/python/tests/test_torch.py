"""torch tensors in, torch tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, REASONS, ROLLOUT, SHAPE, WEIGHTS, answer, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays.interop import check_kinds

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ),
]


def correct(client: cw.Client, device: str = "cpu", **kwargs: Any) -> cw.Result[Any]:
    arguments = {
        "rollout_log_probs": torch.from_numpy(ROLLOUT).to(device),
        "old_log_probs": torch.from_numpy(OLD).to(device),
        "response_mask": torch.from_numpy(MASK).to(device),
    }
    return client.correct(method="token_tis", **{**arguments, **kwargs})


@pytest.mark.parametrize("device", DEVICES)
def test_kind_shape_and_device(server: FakeServer, client: cw.Client, device: str) -> None:
    server.handler = answer
    result = correct(client, device)
    for name, dtype, expected in [
        ("weights", torch.float32, WEIGHTS),
        ("keep_mask", torch.uint8, MASK),
        ("token_reasons", torch.int32, REASONS.astype(np.int32)),
        ("sequence_reasons", torch.int32, np.array([1, 0x8002], np.int32)),
    ]:
        tensor = getattr(result, name)
        assert tensor.device.type == device
        assert tensor.dtype == dtype
        np.testing.assert_array_equal(tensor.cpu().numpy(), expected)
    result.weights.add_(1)  # writable


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("torch_dtype", "wire_dtype"),
    [
        ("float32", "D_TYPE_F32"),
        ("float64", "D_TYPE_F32"),
        ("bfloat16", "D_TYPE_BF16"),
        ("float16", "D_TYPE_F16"),
    ],
)
def test_dtypes_of_log_probs(
    server: FakeServer, client: cw.Client, device: str, torch_dtype: str, wire_dtype: str
) -> None:
    # The numbers are exact in every dtype, so that the bytes can be compared.
    values = torch.from_numpy(ROLLOUT).to(device=device, dtype=getattr(torch, torch_dtype))
    correct(client, device, rollout_log_probs=values.requires_grad_())
    tensor = sent(server.requests[0], tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS)
    assert tensor_pb2.DType.Name(tensor.dtype) == wire_dtype
    received = {
        "D_TYPE_F32": lambda: np.frombuffer(tensor.data, "<f4"),
        "D_TYPE_F16": lambda: np.frombuffer(tensor.data, "<f2"),
        # bfloat16 is the upper half of float32.
        "D_TYPE_BF16": lambda: (np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16).view(
            np.float32
        ),
    }[wire_dtype]()
    np.testing.assert_array_equal(received.reshape(SHAPE), ROLLOUT)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "bfloat16"])
def test_keep_mask_has_the_masks_dtype(server: FakeServer, client: cw.Client, dtype: str) -> None:
    server.handler = answer
    mask = torch.from_numpy(MASK).to(getattr(torch, dtype))
    result = correct(client, response_mask=mask)
    assert result.keep_mask.dtype == mask.dtype
    assert torch.equal(result.keep_mask, mask)
    assert sent(server.requests[0], tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data == MASK.tobytes()


def test_views_and_packed(server: FakeServer, client: cw.Client) -> None:
    wide = torch.from_numpy(np.repeat(ROLLOUT, 2, axis=1))[:, ::2]
    correct(client, rollout_log_probs=wide)
    correct(
        client,
        rollout_log_probs=torch.from_numpy(ROLLOUT).flatten(),
        old_log_probs=torch.from_numpy(OLD).flatten(),
        response_mask=torch.from_numpy(MASK).flatten(),
        sequence_lengths=torch.tensor([4, 2]),
    )
    padded, packed = server.requests
    assert [t.data for t in padded.tensors] == [t.data for t in packed.tensors]
    assert list(packed.layout.packed.sequence_lengths) == [4, 2]


@pytest.mark.parametrize("device", DEVICES)
def test_advantages_of_one_per_sequence(server: FakeServer, client: cw.Client, device: str) -> None:
    per_row = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, device=device)
    correct(client, device, advantages=per_row)
    correct(client, device, advantages=per_row[:, None])
    correct(
        client,
        device,
        rollout_log_probs=torch.from_numpy(ROLLOUT).flatten().to(device),
        old_log_probs=torch.from_numpy(OLD).flatten().to(device),
        response_mask=torch.from_numpy(MASK).flatten().to(device),
        advantages=per_row,
        sequence_lengths=torch.tensor([3, 3]),
    )
    expected = per_row.cpu().repeat_interleave(3).view(torch.uint8).numpy().tobytes()
    for request in server.requests:
        assert sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES).data == expected


def test_contiguous_tensors_are_not_copied_before_the_join() -> None:
    from counterweight_rl.arrays.batch import read_batch

    values = torch.from_numpy(ROLLOUT.copy()).to(torch.bfloat16)
    mask = torch.from_numpy(MASK.copy()).bool()
    batch = read_batch({"rollout_log_probs": values}, mask, None, None)
    pointers = [np.frombuffer(t.data, np.uint8).ctypes.data for t in batch.tensors]
    assert pointers == [values.data_ptr(), mask.data_ptr()]


def test_mixed_kinds_are_refused(client: cw.Client) -> None:
    with pytest.raises(
        TypeError, match="old_log_probs is a numpy array but response_mask is a torch"
    ):
        correct(client, old_log_probs=OLD)
    with pytest.raises(
        TypeError, match="rollout_log_probs is a torch tensor but response_mask is a n"
    ):
        correct(client, response_mask=MASK, old_log_probs=OLD)


def test_mixed_devices_are_refused(client: cw.Client) -> None:
    arrays = {"x": torch.empty(SHAPE, device="meta"), "response_mask": torch.empty(SHAPE)}
    with pytest.raises(TypeError, match="x is on meta but response_mask is on cpu"):
        check_kinds(arrays, "response_mask")
    with pytest.raises(TypeError, match="old_log_probs is a Tensor on the device meta, which has"):
        correct(client, old_log_probs=arrays["x"])


def test_wrong_masks_are_refused(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError, match="must hold only 0 and 1"):
        correct(client, response_mask=torch.from_numpy(MASK).long() * 256)
    with pytest.raises(TypeError, match="response_mask must be"):
        correct(client, response_mask=torch.from_numpy(MASK).to(torch.complex64))
    with pytest.raises(TypeError, match="old_log_probs must be float32, bfloat16"):
        correct(client, old_log_probs=torch.from_numpy(MASK))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "float16", "bfloat16"])
def test_results_are_written_in_place(
    server: FakeServer, client: cw.Client, device: str, dtype: str
) -> None:
    server.handler = answer
    mask = torch.from_numpy(MASK).to(device, getattr(torch, dtype))
    out = {
        "weights": torch.full(SHAPE, 7.0, device=device),
        "keep_mask": torch.ones_like(mask),
        "token_reasons": torch.full(SHAPE, 7, dtype=torch.int32, device=device),
        "sequence_reasons": torch.full((2,), 7, dtype=torch.int32, device=device),
    }
    result = correct(client, device, response_mask=mask, outputs=tuple(out), out=out)
    for name, expected in [
        ("weights", WEIGHTS),
        ("keep_mask", MASK),
        ("token_reasons", REASONS),
        ("sequence_reasons", np.array([1, 0x8002])),
    ]:
        assert getattr(result, name) is out[name]
        np.testing.assert_array_equal(out[name].cpu().to(torch.float64).numpy(), expected)


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (lambda: torch.zeros(3, 2), r"must have shape (2, 3); it has (3, 2)"),
        (
            lambda: torch.zeros(SHAPE, dtype=torch.float64),
            "must have dtype torch.float32; it has torch.float64",
        ),
        (lambda: torch.zeros(3, 2).T, "must be contiguous"),
        (
            lambda: torch.zeros(SHAPE).to_sparse(),
            "must be a plain tensor; it has the layout torch.sparse_coo",
        ),
        (lambda: torch.zeros(1, 3).expand(SHAPE), "must be contiguous"),
        (
            lambda: torch.empty(SHAPE, device="meta"),
            "must be a plain tensor; it is a Tensor on the device meta, which has no data",
        ),
        (
            lambda: torch.zeros(SHAPE, requires_grad=True),
            "must be writable: it must not require a gradient",
        ),
        (
            torch.inference_mode()(lambda: torch.zeros(SHAPE)),
            "must be writable: it was made in torch's inference mode",
        ),
        (
            lambda: np.zeros(SHAPE, np.float32),
            "must be a torch tensor, as response_mask is; it is a ndarray",
        ),
    ],
)
def test_what_cannot_take_the_answer_is_refused_before_it_is_sent(
    server: FakeServer, client: cw.Client, tensor: Any, problem: str
) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, out={"weights": tensor()})
    assert caught.value.violations == [cw.Violation("out['weights']", problem)]
    assert server.requests == []


def test_two_outputs_in_one_place(client: cw.Client) -> None:
    flat = torch.zeros(9)
    with pytest.raises(cw.InvalidRequestError, match="shares memory with out"):
        correct(client, out={"weights": flat[:6].view(SHAPE), "gradient": flat[3:].view(SHAPE)})


def test_autograd_sees_what_is_written(server: FakeServer, client: cw.Client) -> None:
    """A backward pass that needs the old content is an error, not a wrong gradient."""
    server.handler = answer
    weights = torch.ones(SHAPE)
    scale = torch.tensor(2.0, requires_grad=True)
    loss = (scale * weights).sum()
    correct(client, out={"weights": weights})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
