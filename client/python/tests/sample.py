"""A small batch, and a fake server's answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fake_cuda import FakeCuda

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

SHAPE = (2, 3)
ROLLOUT = np.array([[-1, -2, -3], [-4, -5, -6]], np.float32)
OLD = ROLLOUT + np.float32(0.5)
MASK = np.array([[1, 1, 0], [1, 0, 0]], np.uint8)
WEIGHTS = np.array([[1, 2, 0], [0.5, 0, 0]], "<f4")
REASONS = np.array([[0, 1, 0], [0x8002, 0, 0]], "<u2")

BATCH: dict[str, Any] = {
    "rollout_log_probs": ROLLOUT,
    "old_log_probs": OLD,
    "response_mask": MASK,
    "method": "token_tis",
}
ALL = ("weights", "keep_mask", "token_reasons", "sequence_reasons")
OUTPUTS = {
    "weights": WEIGHTS,
    "keep_mask": MASK,
    "token_reasons": REASONS,
    "sequence_reasons": np.array([1, 0x8002], np.uint16),
}

Correct = Callable[..., cw.Result[Any]]
Request = service_pb2.CorrectRequest
Response = service_pb2.CorrectResponse


def correct(client: cw.Client, **changes: Any) -> cw.Result[Any]:
    """Sends the batch, with ``changes`` of its arguments."""
    return client.correct(**{**BATCH, **changes})


def answer(request: Request, context: Any) -> Response:
    """Returns the outputs that a request names; without names all but the gradient."""
    response = Response(
        request_id=request.request_id,
        metrics={"kl": 0.25},
        rules=[service_pb2.RuleSummary(name="mean_k3", dropped_tokens=2, dropped_sequences=1)],
        non_finite_tokens=1,
        numerics_version=7,
        backend="cpu",
        timing=service_pb2.Timing(compute_seconds=0.5),
        warnings=["beware"],
    )
    response.tensors.add(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=WEIGHTS.tobytes())
    response.tensors.add(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=MASK.tobytes())
    response.tensors.add(
        role="TENSOR_ROLE_TOKEN_REASONS", dtype="D_TYPE_U16", data=REASONS.tobytes()
    )
    response.tensors.add(
        role="TENSOR_ROLE_SEQUENCE_REASONS", dtype="D_TYPE_U16", data=b"\x01\x00\x02\x80"
    )
    if request.outputs:
        known = {tensor.role: tensor for tensor in response.tensors}
        gradient = tensor_pb2.Tensor(
            role="TENSOR_ROLE_GRADIENT", dtype="D_TYPE_F32", data=WEIGHTS.tobytes()
        )
        known[gradient.role] = gradient
        asked = [known[role] for role in request.outputs]
        del response.tensors[:]
        response.tensors.extend(asked)
    return response


def destinations(request: Request) -> set[bytes]:
    """Returns the regions to which the server must write."""
    return {destination.shared_memory.handle for destination in request.destinations}


def sent(request: Request, role: int) -> tensor_pb2.Tensor:
    (tensor,) = [t for t in request.tensors if t.role == role]
    return tensor


def assert_is_the_answer(result: cw.Result[Any]) -> None:
    for name, expected in OUTPUTS.items():
        np.testing.assert_array_equal(getattr(result, name), expected)


def on(device: FakeCuda, **changed: Any) -> dict[str, Any]:
    """The sample's batch, on the device."""
    batch: dict[str, Any] = {**BATCH, **changed}
    return {n: device.put(a) if hasattr(a, "shape") else a for n, a in batch.items()}
