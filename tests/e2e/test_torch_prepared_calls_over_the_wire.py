"""Served calls by a template with torch's tensors: the answers and types of the first call."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest
from batches import packed, padded_batch
from prepared import by_plan, thrice
from server_process import ServerProcess
from transports import ARRAYS, LOSS, assert_same

torch = pytest.importorskip("torch")

from counterweight_rl.torch import policy_loss  # noqa: E402

BATCH = {name: torch.from_numpy(array) for name, array in padded_batch().items()}
TRANSPORTS = ("unary", "shared_memory")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"outputs": ARRAYS},
        {"response_mask": BATCH["response_mask"].bool()},
        {"response_mask": BATCH["response_mask"].long()},
        {"old_log_probs": BATCH["old_log_probs"].bfloat16()},
        {"old_log_probs": BATCH["old_log_probs"].half()},
        {"old_log_probs": BATCH["old_log_probs"].double()},
        {"old_log_probs": BATCH["old_log_probs"].t().contiguous().t()},
        {"current_log_probs": BATCH["current_log_probs"].clone().requires_grad_()},
        {"advantages": BATCH["advantages"][:, 0]},
    ],
    ids=str,
)
def test_arguments(sharing: ServerProcess, transport: Any, change: dict[str, Any]) -> None:
    with cw.Client(sharing.address, transport=transport) as client:
        assert by_plan(thrice(client, method=LOSS, **{**BATCH, **change}))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_packed_batches(sharing: ServerProcess, transport: Any) -> None:
    batch = packed(padded_batch(8, 32))
    lengths, padded_length = batch.pop("sequence_lengths"), batch.pop("padded_length")
    batch = {name: torch.from_numpy(array) for name, array in batch.items()}
    batch |= {"sequence_lengths": torch.as_tensor(lengths), "padded_length": padded_length}
    with cw.Client(sharing.address, transport=transport) as client:
        assert by_plan(thrice(client, method=LOSS, **batch))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_writes_into_out_are_seen_by_autograd(sharing: ServerProcess, transport: Any) -> None:
    with cw.Client(sharing.address, transport=transport) as client:
        out = client.empty(tuple(BATCH["old_log_probs"].shape), torch.float32, access="output")
        for weights in (out, torch.empty_like(BATCH["old_log_probs"])):
            for _ in range(3):
                version = weights._version
                result = client.correct(method=LOSS, out={"weights": weights}, **BATCH)
                assert result.weights is weights
                assert weights._version > version
        assert by_plan(result)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_losses_have_the_gradient_of_the_first_call(sharing: ServerProcess, transport: Any) -> None:
    gradients = []
    with cw.Client(sharing.address, transport=transport) as client:
        for _ in range(3):
            current = BATCH["current_log_probs"].clone().requires_grad_()
            policy_loss(client, method=LOSS, **{**BATCH, "current_log_probs": current}).backward()
            gradients.append(current.grad)
    assert torch.equal(gradients[0], gradients[2])


@pytest.mark.parametrize("target", ["local:", *TRANSPORTS])
def test_arrays_are_on_the_host_whatever_the_default_device(
    sharing: ServerProcess, local_library: None, target: str
) -> None:
    way: dict[str, Any] = {} if target == "local:" else {"transport": target}
    with cw.Client(target if target == "local:" else sharing.address, **way) as client:
        expected = client.correct(method=LOSS, **BATCH)
        torch.set_default_device("meta")
        try:
            results = [client.correct(method=LOSS, **BATCH) for _ in range(3)]
        finally:
            torch.set_default_device(None)
        assert by_plan(results[2])
        for result in results:
            assert_same(result, expected)
