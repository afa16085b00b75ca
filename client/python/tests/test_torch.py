"""torch tensors in, torch tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, REASONS, ROLLOUT, SHAPE, WEIGHTS, answer, sent

import counterweight as cw
from counterweight._gen.counterweight.v1 import tensor_pb2

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
    # Exact in every dtype, so that the bytes can be told.
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


def test_contiguous_tensors_are_not_copied_before_the_join() -> None:
    from counterweight import tensors

    values = torch.from_numpy(ROLLOUT.copy()).to(torch.bfloat16)
    mask = torch.from_numpy(MASK.copy()).bool()
    batch = tensors.read_batch({"rollout_log_probs": values}, mask, None, None)
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
    with pytest.raises(TypeError, match="old_log_probs is on meta but response_mask is on cpu"):
        correct(client, old_log_probs=torch.empty(SHAPE, device="meta"))


def test_wrong_masks_are_refused(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError, match="must hold only 0 and 1"):
        correct(client, response_mask=torch.from_numpy(MASK).long() * 256)
    with pytest.raises(TypeError, match="response_mask must be"):
        correct(client, response_mask=torch.from_numpy(MASK).to(torch.complex64))
    with pytest.raises(TypeError, match="old_log_probs must be float32, bfloat16"):
        correct(client, old_log_probs=torch.from_numpy(MASK))
