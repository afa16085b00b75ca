"""Arrays in shared memory."""

from __future__ import annotations

import gc
import mmap
from typing import Any

import numpy as np
import pytest
from fake_memory import REGISTER, RELEASE, Sharing, descriptors, held, reach
from fake_server import FakeServer
from sample import (
    ALL,
    BATCH,
    MASK,
    OLD,
    OUTPUTS,
    ROLLOUT,
    SHAPE,
    Response,
    assert_is_the_answer,
    sent,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.shared_memory.region import SUPPORTED, Access

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


def test_empty_is_read_and_written_in_place(sharing: Sharing, sharer: cw.Client) -> None:
    server, memory = sharing
    wide = sharer.empty((4, *SHAPE))
    assert wide.dtype == np.float32
    # Contiguous parts of one array need no copy.
    rollout, old = wide[1], wide[3]
    mask = sharer.empty(SHAPE, bool)
    rollout[...], old[...], mask[...] = ROLLOUT, OLD, MASK
    out = {
        "weights": sharer.empty(SHAPE, access="output"),
        "keep_mask": sharer.empty(SHAPE, bool, access="output"),
        "token_reasons": sharer.empty(SHAPE, np.uint16, access="output"),
        "sequence_reasons": np.zeros(2, np.uint16),
    }
    result = sharer.correct(
        rollout_log_probs=rollout,
        old_log_probs=old,
        response_mask=mask,
        method="token_tis",
        outputs=ALL,
        out=out,
    )
    assert_is_the_answer(result)
    for name, array in out.items():
        assert getattr(result, name) is array
    (request,) = server.requests
    assert sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).shared_memory.offset == 3 * 24
    assert {d.shared_memory.handle for d in request.destinations} <= set(memory.regions)
    # Two inputs, three outputs, and a region for an ordinary array.
    assert [p[:2] for p in memory.packets].count((REGISTER, Access.READ)) == 2
    assert [p[:2] for p in memory.packets].count((REGISTER, Access.WRITE)) == 4


def test_what_cannot_be_read_in_place_is_copied(sharing: Sharing, sharer: cw.Client) -> None:
    server, _ = sharing
    raw = sharer.empty(100, np.uint8)
    odd = raw[1 : 1 + OLD.nbytes].view(np.float32).reshape(SHAPE)  # not aligned
    odd[...] = OLD
    strided = sharer.empty((2, 6))[:, ::2]
    strided[...] = ROLLOUT
    mask = sharer.empty(SHAPE, np.uint8, access="output")  # the server may not read it
    mask[...] = MASK
    out = {"weights": sharer.empty(SHAPE)}  # and may not write this one
    result = sharer.correct(
        rollout_log_probs=strided,
        old_log_probs=odd,
        response_mask=mask,
        method="token_tis",
        outputs=ALL,
        out=out,
    )
    assert_is_the_answer(result)
    assert result.weights is out["weights"]
    for role, array in (
        (tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS, OLD),
        (tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS, ROLLOUT),
        (tensor_pb2.TENSOR_ROLE_RESPONSE_MASK, MASK),
    ):
        assert sent(server.requests[0], role).data == array.tobytes()


def test_an_array_that_fills_its_region_is_read_in_place(
    sharing: Sharing, sharer: cw.Client
) -> None:
    server, memory = sharing
    server.handler = memory.serve(lambda request, _: Response(request_id=request.request_id))
    length = 3 * mmap.PAGESIZE // 4
    whole = sharer.empty((1, length))
    whole[...] = -1
    sharer.correct(
        rollout_log_probs=whole,
        old_log_probs=whole,
        response_mask=np.ones((1, length), np.uint8),
        method="token_tis",
    )
    for role in (
        tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS,
        tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS,
    ):
        shared = sent(server.requests[-1], role).shared_memory
        assert (shared.offset, shared.length) == (0, whole.nbytes)
        assert len(memory.regions[shared.handle][1]) == whole.nbytes


def test_memory_is_given_back_with_its_last_view(sharing: Sharing, sharer: cw.Client) -> None:
    _, memory = sharing
    array = sharer.empty(SHAPE)
    array[...] = OLD
    sharer.correct(**{**BATCH, "old_log_probs": array})
    with_array = held()
    view = array[1:].reshape(-1)[:2]
    del array
    gc.collect()
    assert held() == with_array
    np.testing.assert_array_equal(view, OLD[1, :2])
    del view
    reach(with_array - 2)  # ours and the server's
    assert [operation for operation, _, _ in memory.packets].count(RELEASE) == 1
    sharer.close()
    reach(0)


def test_arrays_outlive_their_client(sharing: Sharing) -> None:
    with cw.Client(sharing[0].target) as client:
        array = client.empty(SHAPE)
        assert descriptors() == 2
    # One is Python's own, of the mapping; the region's is closed with the client.
    assert descriptors() == 1
    array[...] = 3
    assert (array == 3).all()
    del array
    reach(0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shape": -1}, ValueError, "shape must not be negative; got -1"),
        ({"shape": (2, 1.5)}, TypeError, "shape must be an int or a sequence of ints"),
        ({"shape": 2, "access": "both"}, ValueError, "access must be one of input, output"),
        ({"shape": 2, "dtype": "nonsense"}, TypeError, "nonsense"),
    ],
)
def test_wrong_arguments_of_empty(
    sharer: cw.Client, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sharer.empty(**arguments)


def test_empty_without_shared_memory(server: FakeServer) -> None:
    with cw.Client(server.target) as client:
        assert client.empty(3).base is None
    with cw.Client("unix:/nobody/is/here", timeout=5) as client:
        array = client.empty((2, 2), np.float16)  # for a server that starts later
        assert array.shape == (2, 2)
    del array
    reach(0)


def test_torch(sharing: Sharing, sharer: cw.Client) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    server, _ = sharing
    tensors = {}
    for name, array, dtype in (
        ("rollout_log_probs", ROLLOUT, torch.float32),
        ("old_log_probs", OLD, torch.bfloat16),
        ("response_mask", MASK, torch.bool),
    ):
        tensors[name] = sharer.empty(SHAPE, dtype)
        assert tensors[name].dtype == dtype
        tensors[name].copy_(torch.from_numpy(array))
    out = {
        "weights": sharer.empty(SHAPE, torch.float32, access="output"),
        "keep_mask": sharer.empty(SHAPE, torch.bool, access="output"),
        "token_reasons": sharer.empty(SHAPE, torch.int32, access="output"),
    }
    result = sharer.correct(**tensors, method="token_tis", outputs=ALL, out=out)
    for name, tensor in out.items():
        assert getattr(result, name) is tensor
        np.testing.assert_array_equal(tensor.numpy(), OUTPUTS[name])
    assert all(t.HasField("shared_memory") for t in server.requests[0].tensors)
    del tensors, out, result, tensor
    sharer.close()
    reach(0)
