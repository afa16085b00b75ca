"""Copies between a fake device and the host.

Its tensors are the host's, but copies happen as late as on a real stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, REASONS, ROLLOUT, SHAPE, WEIGHTS, answer, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays import pinned

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")


class Late(pinned.Transfers):
    """Makes copies to and from the host when they are waited for."""

    waits = 0
    queued: ClassVar[list[Callable[[], Any]]] = []

    def to_host(self, tensor: Any) -> Any:
        host = self.allocate(tensor.numel() * tensor.element_size(), tensor.device)
        host = host.view(tensor.dtype).reshape(tensor.shape)
        self.copy(host, tensor)
        return host

    def copy(self, to: Any, source: Any) -> None:
        to.zero_()
        Late.queued.append(lambda: to.copy_(source))

    def wait(self) -> None:
        Late.waits += 1
        while Late.queued:
            Late.queued.pop(0)()


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    Late.waits = 0
    for module in ("arrays.batch", "correction"):
        monkeypatch.setattr(f"counterweight_rl.{module}.Transfers", Late)


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_all_copies_are_waited_for_once(streaming: FakeServer, transport: Any) -> None:
    streaming.handler = answer
    names = ("weights", "keep_mask", "token_reasons")
    with cw.Client(streaming.target, transport=transport) as client:
        result = client.correct(
            rollout_log_probs=torch.from_numpy(ROLLOUT),
            old_log_probs=torch.from_numpy(OLD),
            response_mask=torch.from_numpy(MASK).to(torch.int64),
            method="token_tis",
            outputs=names,
            out={"keep_mask": torch.zeros(SHAPE, dtype=torch.int64)},
        )
    (request,) = streaming.requests
    for role, array in (
        (tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS, ROLLOUT),
        (tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS, OLD),
        (tensor_pb2.TENSOR_ROLE_RESPONSE_MASK, MASK),
    ):
        assert sent(request, role).data == array.tobytes()
    for name, expected in zip(names, (WEIGHTS, MASK, REASONS), strict=True):
        np.testing.assert_array_equal(getattr(result, name).numpy(), expected)
    assert Late.waits == 2  # for the inputs, and for the outputs
    assert Late.queued == []


def test_host_memory_is_not_copied() -> None:
    transfers = pinned.Transfers()
    tensor = torch.ones(3)
    assert transfers.to_host(tensor) is tensor
    transfers.wait()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_device() -> None:
    transfers = pinned.Transfers()
    tensor = torch.arange(1_000_000, device="cuda", dtype=torch.float32)
    host = transfers.to_host(tensor)
    assert host.is_pinned()
    transfers.wait()
    assert torch.equal(host, torch.arange(1_000_000, dtype=torch.float32))
    back = torch.zeros_like(tensor)
    transfers.to_device(back, host)
    transfers.wait()
    assert torch.equal(back, tensor)
