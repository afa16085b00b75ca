"""CUDA tensors of torch go by plans of ``local:cuda`` as arrays of the host do: on the fake runtime.

Where torch converts nothing, the runtime runs streams late, so that a call in another stream than
the caller's shows as wrong numbers.
"""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from device_arrays import Device
from prepared import BATCH, WRONG, by_plan
from transports import ARRAYS, LOSS, SMALL, assert_same

torch = pytest.importorskip("torch")

from counterweight_rl.torch import policy_loss  # noqa: E402
from prepared_cuda import (  # noqa: E402
    HOST,
    assert_numbers,
    assert_third_is_first,
    on_cpu,
    received,
)


@pytest.mark.parametrize("method", ["token_tis", "icepop", "token_tis_ppo_clip", "gspo", "cispo"])
def test_presets(device: Device, local_cuda: cw.Client, tensors: Any, method: str) -> None:
    third = assert_third_is_first(tensors, local_cuda, method=method, **tensors.send_batch(BATCH))
    assert_numbers(third, on_cpu(method=method, **BATCH))
    for seed in range(1, 7):
        device.set_seed(seed)
        batch = padded_batch(5, 60, seed=seed)
        result = local_cuda.correct(method=method, **tensors.send_batch(batch))
        assert by_plan(result)
        found = received(tensors, result)
        assert_numbers(found, on_cpu(method=method, **batch))
    assert tensors.synchronized == 0


@pytest.mark.parametrize("name", SMALL)
def test_every_output_of_every_layout(local_cuda: cw.Client, tensors: Any, name: str) -> None:
    sent = tensors.send_batch(SMALL[name])
    with tensors.torch_computes():
        third = assert_third_is_first(tensors, local_cuda, method=LOSS, outputs=ARRAYS, **sent)
    host = {n: torch.from_numpy(a) if a.ndim else a for n, a in _arrays(SMALL[name]).items()}
    assert_numbers(third, on_cpu(method=LOSS, outputs=ARRAYS, **{**SMALL[name], **host}))


def _arrays(batch: dict[str, Any]) -> dict[str, Any]:
    return {n: a for n, a in batch.items() if isinstance(a, np.ndarray) and "lengths" not in n}


CHANGES: list[dict[str, Any]] = [
    {},
    {"outputs": ("loss",)},
    {"outputs": ["keep_mask"]},
    {"metrics": False},
    {"run": "a", "policy_version": 3, "request_id": "mine", "seed": 3, "timeout": 100},
    {"response_mask": HOST["response_mask"].bool()},
    {"response_mask": HOST["response_mask"].long()},
    {"response_mask": HOST["response_mask"].float()},
    {"old_log_probs": HOST["old_log_probs"].bfloat16()},
    {"old_log_probs": HOST["old_log_probs"].half()},
    {"old_log_probs": HOST["old_log_probs"].double()},
    {"advantages": HOST["advantages"][:, 0]},
    {"advantages": HOST["advantages"][:, :1]},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_arguments(local_cuda: cw.Client, tensors: Any, change: dict[str, Any]) -> None:
    call = {"method": LOSS, "outputs": ARRAYS, **HOST, **change}
    sent = tensors.send_batch(call)
    with tensors.torch_computes():
        third = assert_third_is_first(tensors, local_cuda, **sent)
    assert third.request_id == change.get("request_id", third.request_id)
    assert_numbers(third, on_cpu(**call))


@pytest.mark.parametrize(
    "view",
    [
        lambda sent: sent.t().contiguous().t(),
        lambda sent: torch.cat([sent, sent])[6:],
        lambda sent: torch.nn.Parameter(sent, requires_grad=False),
        lambda sent: sent.detach().requires_grad_(),
    ],
    ids=["transposed", "part", "parameter", "with gradient"],
)
def test_tensors_of_any_strides_and_classes(local_cuda: cw.Client, tensors: Any, view: Any) -> None:
    sent = tensors.send_batch(HOST)
    with tensors.torch_computes():
        sent["old_log_probs"] = view(sent["old_log_probs"])
        assert tensors.index_of(sent["old_log_probs"]) == 0
        third = assert_third_is_first(tensors, local_cuda, method=LOSS, **sent)
    assert_numbers(third, on_cpu(method=LOSS, **BATCH))


def test_packed_advantages_of_rows(local_cuda: cw.Client, tensors: Any) -> None:
    batch = packed(padded_batch(8, 32, seed=2))
    batch["advantages"] = np.linspace(-1, 1, 8, dtype=np.float32)
    with tensors.torch_computes():
        third = assert_third_is_first(tensors, local_cuda, method=LOSS, **tensors.send_batch(batch))
    assert_numbers(third, on_cpu(method=LOSS, **batch))


def test_out_is_written_in_place(device: Device, local_cuda: cw.Client, tensors: Any) -> None:
    out = {
        name: tensors.send(torch.zeros(HOST["old_log_probs"].shape, dtype=dtype))
        for name, dtype in (("weights", torch.float32), ("keep_mask", torch.uint8))
    }
    call = {"method": "token_tis", "outputs": tuple(out), "out": out}
    for seed in range(5):
        device.set_seed(seed)
        batch = padded_batch(seed=seed)
        result = local_cuda.correct(**tensors.send_batch(batch), **call)
        assert result.weights is out["weights"]
        assert result.keep_mask is out["keep_mask"]
        found = received(tensors, result)
        assert_numbers(found, on_cpu(method="token_tis", outputs=tuple(out), **batch))
    assert by_plan(result)


def test_out_may_be_an_input(local_cuda: cw.Client, tensors: Any) -> None:
    expected = on_cpu(method="token_tis", **BATCH)
    for _ in range(4):
        sent = tensors.send_batch(BATCH)
        with tensors.torch_computes():
            result = local_cuda.correct(
                method="token_tis", out={"weights": sent["old_log_probs"]}, **sent
            )
            assert result.weights is sent["old_log_probs"]
            assert_numbers(received(tensors, result), expected)


def test_out_tells_autograd(local_cuda: cw.Client, tensors: Any) -> None:
    out = tensors.send(torch.ones(6, 37))
    for _ in range(3):
        version = out._version
        result = local_cuda.correct(
            method="token_tis", out={"weights": out}, **tensors.send_batch(BATCH)
        )
        assert out._version > version
    assert by_plan(result)


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_the_first_call(local_cuda: cw.Client, tensors: Any, name: str) -> None:
    method = cw.Preset("token_tis", upper=1)

    def sent(call: dict[str, Any]) -> dict[str, Any]:
        return {
            n: {key: tensors.send(array) for key, array in a.items()}
            if n == "out" and isinstance(a, dict)
            else tensors.send(a)
            if type(a) is np.ndarray and a.dtype != np.uint16
            else a
            for n, a in call.items()
        }

    def failure(client: cw.Client) -> Exception:
        with pytest.raises(Exception) as caught, tensors.torch_computes():
            client.correct(**sent({"method": method, "request_id": "a", **BATCH, **WRONG[name]}))
        return caught.value

    for _ in range(3):
        local_cuda.correct(method=method, request_id="a", **sent(BATCH))
    with cw.Client("local:cuda") as fresh:
        expected = failure(fresh)
    for _ in range(2):
        found = failure(local_cuda)
        assert type(found) is type(expected)
        assert str(found) == str(expected)
        assert getattr(found, "violations", None) == getattr(expected, "violations", None)
        assert getattr(found, "request_id", None) == getattr(expected, "request_id", None)
    assert by_plan(local_cuda.correct(method=method, request_id="a", **sent(BATCH)))


def test_tensors_of_several_places_are_refused_as_before(
    local_cuda: cw.Client, tensors: Any
) -> None:
    sent = tensors.send_batch(BATCH)
    for name, wrong, words in (
        ("advantages", HOST["advantages"], "is on cpu but response_mask is on cuda:0"),
        ("advantages", tensors.send(BATCH["advantages"], 1), "is on cuda:1 but response_mask is"),
        ("advantages", BATCH["advantages"], "is a numpy array but response_mask is a torch"),
        ("response_mask", HOST["response_mask"], "is on cuda:0 but response_mask is on cpu"),
    ):
        for _ in range(3):
            with pytest.raises(TypeError, match=words):
                local_cuda.correct(method=LOSS, **{**sent, name: wrong})
        for _ in range(3):
            result = local_cuda.correct(method=LOSS, **sent)
        assert by_plan(result)


def test_lost_storage_is_refused_not_read(local_cuda: cw.Client, tensors: Any) -> None:
    sent = tensors.send_batch(BATCH)
    for _ in range(3):
        local_cuda.correct(method="token_tis", **sent)
    lost = torch.empty(6, 37)
    lost.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="has lost its storage"):
        local_cuda.correct(method="token_tis", **{**sent, "old_log_probs": lost})


@pytest.mark.parametrize(
    "change",
    [
        {"row_divisors": np.ones(6)},
        {"version_spans": [(0, 0, 3, 1)], "policy_version": 1},
        {"progress": lambda *_: None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_has_no_plan(local_cuda: cw.Client, tensors: Any, change: dict[str, Any]) -> None:
    mean = cw.PolicyLoss(
        surrogate="ppo_clip",
        aggregation="seq_mean_token_mean",
        denominator="original",
        clip_low=0.2,
        clip_high=0.2,
    )
    method = cw.Preset("token_tis", policy_loss=mean)
    sent = tensors.send_batch(BATCH)
    first, _, third = [local_cuda.correct(method=method, **{**sent, **change}) for _ in range(3)]
    assert not by_plan(third)
    assert_same(received(tensors, third), received(tensors, first))


def test_losses_and_gradients(local_cuda: cw.Client, tensors: Any) -> None:
    losses, gradients = [], []
    for _ in range(4):
        sent = tensors.send_batch(BATCH)
        with tensors.torch_computes():
            current = sent["current_log_probs"].requires_grad_()
            loss = policy_loss(local_cuda, method=LOSS, **{**sent, "current_log_probs": current})
            (3.0 * loss).backward()
            losses.append(loss.item())
            gradients.append(tensors.receive(current.grad))
    expected = on_cpu(method=LOSS, outputs=("loss", "gradient"), **BATCH)
    assert losses == [np.float32(expected.loss)] * 4
    for gradient in gradients:
        np.testing.assert_array_equal(gradient.numpy(), 3.0 * expected.gradient)
