"""``local:cuda`` computes arrays where they lie, in the caller's stream: on the fake CUDA runtime.

The runtime runs streams late, in an order of its seed, and nothing but streams is waited for
here, so that a missing wait shows as wrong numbers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import aio
from device_arrays import Device, DlpackArray
from server_process import DEADLINE_SECONDS
from transports import LOSS

OUTPUTS = ("weights", "keep_mask", "gradient")
DTYPES = {"weights": np.float32, "keep_mask": np.uint8, "gradient": np.float32}


def arrays(seed: int = 0) -> dict[str, Any]:
    return padded_batch(6, 50, seed=seed)


def expected(batch: dict[str, Any]) -> cw.Result[Any]:
    with cw.Client("local:") as client:
        return client.correct(**batch, method=LOSS, outputs=OUTPUTS)


def assert_equal(actual: cw.Result[Any], arrays: dict[str, Any], wanted: cw.Result[Any]) -> None:
    for name in OUTPUTS:
        np.testing.assert_array_equal(arrays[name], getattr(wanted, name), name)
    assert actual.loss == wanted.loss
    assert actual.metrics == wanted.metrics
    assert actual.backend == "cuda"


def assert_tensors(tensors: Any, result: cw.Result[Any], batch: dict[str, Any]) -> None:
    """The result's tensors have the numbers once the current stream has reached them."""
    received = {name: tensors.receive(getattr(result, name)) for name in OUTPUTS}
    tensors.device.synchronize(tensors.stream)
    assert_equal(result, received, expected(batch))


@pytest.mark.parametrize("kind", ["interface", "dlpack"])
def test_arrays_are_corrected_in_their_stream(
    device: Device, local_cuda: cw.Client, kind: str
) -> None:
    for seed in range(1, 13):
        device.set_seed(seed)
        batch = arrays(seed)
        stream = device.stream() if kind == "interface" else 1
        sent: Any = {name: device.send(array, stream) for name, array in batch.items()}
        out: Any = {
            n: device.empty(batch["response_mask"].shape, DTYPES[n], stream) for n in OUTPUTS
        }
        if kind == "dlpack":
            sent = {name: DlpackArray(array) for name, array in sent.items()}
        result = local_cuda.correct(**sent, method=LOSS, outputs=OUTPUTS, out=out)
        assert result.weights is out["weights"]
        received = {name: device.receive(out[name], stream) for name in OUTPUTS}
        device.overwrite(stream)
        device.synchronize(stream)
        assert_equal(result, received, expected(batch))


def test_torch_tensors_are_corrected_in_the_current_stream(
    device: Device, local_cuda: cw.Client, tensors: Any
) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(1, 13):
        device.set_seed(seed)
        batch = arrays(seed)
        # Each of another kind, so that no plan answers it.
        result = local_cuda.correct(
            **tensors.send_batch(batch), method=LOSS, outputs=OUTPUTS, run=str(seed)
        )
        assert isinstance(result.weights, torch.Tensor)
        assert_tensors(tensors, result, batch)
    assert tensors.synchronized == 0


def test_submitted_tensors_are_copied_on_the_device(
    device: Device, local_cuda: cw.Client, tensors: Any
) -> None:
    for seed in range(1, 13):
        device.set_seed(seed)
        batch = arrays(seed)
        sent = tensors.send_batch(batch)
        future = local_cuda.submit(**sent, method=LOSS, outputs=OUTPUTS)
        device.overwrite(tensors.stream)
        assert_tensors(tensors, future.result(DEADLINE_SECONDS), batch)


def test_arrays_under_asyncio(device: Device, local_cuda: cw.Client) -> None:
    async def correct(batch: dict[str, Any], stream: int) -> None:
        sent: Any = {name: device.send(array, stream) for name, array in batch.items()}
        out: Any = {
            n: device.empty(batch["response_mask"].shape, DTYPES[n], stream) for n in OUTPUTS
        }
        result = await client.correct(**sent, method=LOSS, outputs=OUTPUTS, out=out)
        received = {name: device.receive(out[name], stream) for name in OUTPUTS}
        device.synchronize(stream)
        assert_equal(result, received, expected(batch))

    async def together() -> None:
        for seed in range(1, 7):
            device.set_seed(seed)
            batches = [arrays(10 * seed + i) for i in range(3)]
            await asyncio.gather(*(correct(batch, device.stream()) for batch in batches))
        await client.close()

    client = aio.Client("local:cuda")
    asyncio.run(together())


def test_arrays_in_host_memory_are_still_taken(local_cuda: cw.Client) -> None:
    batch = arrays()
    result = local_cuda.correct(**batch, method=LOSS, outputs=OUTPUTS)
    assert_equal(result, {n: getattr(result, n) for n in OUTPUTS}, expected(batch))


def test_what_is_refused(device: Device, local_cuda: cw.Client) -> None:
    host = arrays()
    sent: Any = {name: device.send(array, 1) for name, array in host.items()}
    with pytest.raises(cw.InvalidRequestError, match=r"out\['weights'\]: is required"):
        local_cuda.correct(**sent, method=LOSS, outputs=("weights",))
    out: Any = {"weights": device.empty((6, 50), np.float32, 1)}
    call: dict[str, Any] = {"method": LOSS, "outputs": ("weights",), "out": out}
    with pytest.raises(
        TypeError, match="advantages is a numpy array but response_mask is an array"
    ):
        local_cuda.correct(**{**sent, "advantages": host["advantages"]}, **call)
    with pytest.raises(cw.InvalidRequestError, match="lies on another CUDA device"):
        local_cuda.correct(
            **{**sent, "advantages": device.send(host["advantages"], 1, index=1)}, **call
        )
    with pytest.raises(cw.InvalidRequestError, match="names stream"):
        other = device.send(host["advantages"], device.stream())
        local_cuda.correct(**{**sent, "advantages": other}, **call)
    with pytest.raises(TypeError, match="advantages must be C-contiguous on a device"):
        local_cuda.correct(**{**sent, "advantages": device.transposed(sent["advantages"])}, **call)
    with pytest.raises(
        TypeError, match="advantages must be float32 or float16 or bfloat16 on a dev"
    ):
        wide = device.send(host["advantages"].astype(np.float64), 1)
        local_cuda.correct(**{**sent, "advantages": wide}, **call)
    with pytest.raises(cw.InvalidRequestError, match=r"out\['weights'\]: must have dtype float32"):
        wrong: Any = {"weights": device.empty((6, 50), np.float16, 1)}
        local_cuda.correct(**sent, **{**call, "out": wrong})
    with cw.Client("local:") as cpu, pytest.raises(TypeError, match="only a target local:cuda"):
        cpu.correct(**sent, **call)
    with pytest.raises(TypeError, match="only their own library can copy arrays on a device"):
        local_cuda.submit(**sent, **call).result(DEADLINE_SECONDS)
    with pytest.raises(cw.CounterweightError, match="there is no device 7"):
        cw.Client("local:cuda?device=7")


def test_the_reason_is_given_where_there_is_no_device(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_FAKE_CUDA_OLD_DRIVER", "1")
    with pytest.raises(cw.CounterweightError, match=r"CUDA 13\.0 needs .*\(580\)"):
        cw.Client("local:cuda")
