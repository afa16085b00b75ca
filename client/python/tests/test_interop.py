"""Arrays that are neither numpy's nor torch's."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, SHAPE, WEIGHTS, answer, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays.batch import read_batch
from counterweight_rl.arrays.interop import adopt


class Foreign:
    """An array of another library in the memory of a numpy array."""

    def __init__(self, memory: Any, device: int = 1) -> None:
        self._memory = memory
        self._device = device

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._memory.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._device, 0)


def test_dlpack(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    result: Any = client.correct(
        rollout_log_probs=Foreign(ROLLOUT.copy()),  # type: ignore[type-var]
        old_log_probs=OLD,
        response_mask=Foreign(MASK.copy()),
        method="token_tis",
    )
    assert isinstance(result.weights, np.ndarray)
    np.testing.assert_array_equal(result.weights, WEIGHTS)
    assert result.keep_mask.dtype == np.uint8
    request = server.requests[0]
    assert sent(request, tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS).data == ROLLOUT.tobytes()


def test_buffers(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    result: Any = client.correct(
        rollout_log_probs=array.array("f", ROLLOUT.reshape(-1)),  # type: ignore[type-var]
        old_log_probs=memoryview(OLD.reshape(-1)),
        response_mask=bytearray(MASK.tobytes()),
        sequence_lengths=array.array("i", [3, 3]),
        method="token_tis",
        out={"weights": np.zeros(6, np.float32)},
    )
    np.testing.assert_array_equal(result.weights, WEIGHTS.reshape(-1))
    # A memoryview of two dimensions.
    shaped = memoryview(ROLLOUT.tobytes()).cast("f", SHAPE)
    client.correct(
        rollout_log_probs=shaped,  # type: ignore[type-var]
        old_log_probs=OLD,
        response_mask=MASK,
        method="token_tis",
    )
    first, second = server.requests
    assert [t.data for t in first.tensors] == [t.data for t in second.tensors]


def test_they_are_not_copied() -> None:
    memory = array.array("f", [0.0] * 6)
    foreign = OLD.copy()
    batch = read_batch(
        {"rollout_log_probs": memory, "old_log_probs": Foreign(foreign.reshape(-1))},  # type: ignore[type-var]
        MASK.reshape(-1),
        [6],
        None,
    )
    rollout, old, _ = (np.frombuffer(tensor.data, np.uint8) for tensor in batch.tensors)
    assert np.shares_memory(rollout, np.frombuffer(memory, np.uint8))
    assert np.shares_memory(old, foreign)
    assert not any(tensor.owned for tensor in batch.tensors)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Foreign(OLD, device=10), "x is a Foreign on a device; pass it as a torch tensor"),
        (Foreign(OLD, device=2), "x is a Foreign that cannot be read: NumPy only supports"),
        (Foreign(object()), "x is a Foreign|no attribute"),
        ([1.0], "x must be a numpy array or a torch tensor, or have the buffer protocol or"),
        ("text", "x must be .*, not str"),
    ],
)
def test_what_is_none(wrong: Any, message: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=message):
        adopt("x", wrong)


def test_kinds_do_not_mix() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(TypeError, match="old_log_probs is a numpy array but response_mask is a"):
        read_batch(
            {"old_log_probs": array.array("f", [0.0])},  # type: ignore[type-var]
            torch.ones(1),
            [1],
            None,
        )
