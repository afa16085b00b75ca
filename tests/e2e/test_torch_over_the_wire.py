"""torch tensors against a real server."""

from __future__ import annotations

from typing import Any

import counterweight as cw
import numpy as np
import pytest
from batches import packed, padded_batch

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")


def to_torch(batch: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    if dtype is not None:
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                tensors[name] = tensor.to(dtype)
    return tensors


@pytest.mark.parametrize("layout", [dict, packed])
def test_tensors_get_what_arrays_get(client: cw.Client, layout: Any) -> None:
    batch = layout(padded_batch())
    width = {"padded_length": batch.pop("padded_length", None)}
    arrays = client.correct(method="token_tis", **batch, **width)
    tensors = client.correct(method="token_tis", **to_torch(batch), **width)
    assert arrays.weights is not None
    assert arrays.keep_mask is not None
    assert isinstance(tensors.weights, torch.Tensor)
    assert tensors.weights.numpy().tobytes() == arrays.weights.tobytes()
    assert tensors.keep_mask.numpy().tobytes() == arrays.keep_mask.tobytes()
    assert tensors.weights.shape == batch["response_mask"].shape
    np.testing.assert_equal(tensors.metrics, arrays.metrics)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_upcast_exactly(client: cw.Client, dtype: str) -> None:
    halves = to_torch(padded_batch(), getattr(torch, dtype))
    floats = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in halves.items()
    }
    narrow = client.correct(method="token_tis", **halves)
    wide = client.correct(method="token_tis", **floats)
    assert narrow.weights.dtype == torch.float32
    assert torch.equal(narrow.weights, wide.weights)
    np.testing.assert_equal(narrow.metrics, wide.metrics)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_tensors_come_back_to_their_device(client: cw.Client) -> None:
    batch = to_torch(padded_batch())
    expected = client.correct(method="token_tis", **batch)
    there = {name: tensor.cuda() for name, tensor in batch.items()}
    result = client.correct(method="token_tis", **there)
    assert result.weights.device == there["response_mask"].device
    assert torch.equal(result.weights.cpu(), expected.weights)
