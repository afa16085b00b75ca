"""The policy loss as a node of autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response, answer, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.torch import policy_loss, policy_loss_with_result  # noqa: E402

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ),
]
LOSS = 1.25
# The ratio of the numbers exceeds 65504, so that only a scale before rounding to float16 is exact.
GRADIENT = np.array([[0.5, -2.0, 0], [2.0**-20, 0, 0]], "<f4")


def with_loss(request: Request, context: Any) -> Response:
    response = answer(request, context)
    response.loss = LOSS
    if not request.outputs:
        response.tensors.add(role="TENSOR_ROLE_GRADIENT", dtype="D_TYPE_F32")
    for tensor in response.tensors:
        if tensor.role == tensor_pb2.TENSOR_ROLE_GRADIENT:
            tensor.data = GRADIENT.tobytes()
    return response


@pytest.fixture(autouse=True)
def answers(server: FakeServer) -> None:
    server.handler = with_loss


def arguments(device: str = "cpu", dtype: Any = torch.float32) -> dict[str, Any]:
    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return {
        "current_log_probs": tensor(OLD * 2).to(dtype).requires_grad_(),
        "old_log_probs": tensor(OLD),
        "rollout_log_probs": tensor(ROLLOUT),
        "response_mask": tensor(MASK),
        "advantages": torch.tensor([1.0, -1.0], device=device),
        "method": cw.Dialect("verl", {"rollout_is": "token"}),
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_backward_is_the_services_gradient(client: cw.Client, device: str, dtype: Any) -> None:
    inputs = arguments(device, dtype)
    loss = policy_loss(client, **inputs)
    assert isinstance(loss, torch.Tensor)
    assert loss.shape == ()
    assert loss.item() == LOSS
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert loss.device.type == device
    loss.backward()
    gradient = inputs["current_log_probs"].grad
    assert gradient.dtype == dtype
    assert gradient.device.type == device
    assert torch.equal(gradient.cpu(), torch.from_numpy(GRADIENT).to(dtype))


def test_the_graph_behind_gets_the_gradient(client: cw.Client) -> None:
    inputs = arguments()
    logits = inputs["current_log_probs"]
    policy_loss(client, **{**inputs, "current_log_probs": logits * 3}).backward()
    np.testing.assert_array_equal(logits.grad.numpy(), GRADIENT * 3)


def test_gradients_accumulate_and_scale(client: cw.Client) -> None:
    inputs = arguments()
    for _ in range(2):
        (policy_loss(client, **inputs) / 4 + 7.0).backward()
    np.testing.assert_array_equal(inputs["current_log_probs"].grad.numpy(), GRADIENT / 2)


def test_a_loss_scale_is_applied_before_rounding(client: cw.Client) -> None:
    inputs = arguments(dtype=torch.float16)
    # GradScaler multiplies like this. 2^-20 is subnormal in float16; times 2^16 it is exact.
    (policy_loss(client, **inputs) * 65536.0).backward()
    gradient = inputs["current_log_probs"].grad
    assert gradient[1, 0].item() == 2.0**-4
    assert torch.isinf(gradient[0, 1])  # the scaler's signal to skip the step


def test_other_inputs_get_no_gradient(client: cw.Client) -> None:
    inputs = arguments()
    others = ("old_log_probs", "rollout_log_probs", "advantages")
    for name in others:
        inputs[name].requires_grad_()
    policy_loss(client, **inputs).backward()
    assert all(inputs[name].grad is None for name in others)


def test_no_gradient_is_asked_for_without_autograd(server: FakeServer, client: cw.Client) -> None:
    inputs = arguments()
    with torch.no_grad():
        assert not policy_loss(client, **inputs).requires_grad
    detached = inputs["current_log_probs"].detach()
    assert not policy_loss(client, **{**inputs, "current_log_probs": detached}).requires_grad
    policy_loss(client, **inputs)
    asked = [tensor_pb2.TENSOR_ROLE_GRADIENT in request.outputs for request in server.requests]
    assert asked == [False, False, True]
    assert all(request.compute_loss for request in server.requests)


def test_second_derivatives_are_refused(client: cw.Client) -> None:
    inputs = arguments()
    scale = torch.tensor(2.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        policy_loss(client, **inputs) * scale, inputs["current_log_probs"], create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_rest_of_the_answer(server: FakeServer, client: cw.Client) -> None:
    inputs = arguments()
    loss, result = policy_loss_with_result(client, **inputs, run="r", seed=3)
    loss.backward()
    np.testing.assert_array_equal(inputs["current_log_probs"].grad.numpy(), GRADIENT)
    np.testing.assert_array_equal(result.weights.numpy(), WEIGHTS)
    np.testing.assert_array_equal(result.keep_mask.numpy(), MASK)
    assert result.metrics == {"kl": 0.25}
    assert result.warnings == ("beware",)
    (request,) = server.requests
    assert (request.labels.run, request.seed, request.compute_loss) == ("r", 3, True)
    advantages = sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES).data
    np.testing.assert_array_equal(np.frombuffer(advantages, "<f4"), [1, 1, 1, -1, -1, -1])


@pytest.mark.parametrize("function", [policy_loss, policy_loss_with_result])
def test_a_method_without_a_loss_is_refused(
    server: FakeServer, client: cw.Client, function: Any
) -> None:
    server.handler = answer
    with pytest.raises(cw.InvalidRequestError) as caught:
        function(client, **arguments())
    assert caught.value.violations == [cw.Violation("method", "has no policy loss")]


def test_packed(client: cw.Client) -> None:
    inputs = arguments()
    log_probs = inputs["current_log_probs"]
    flat = {
        name: value.flatten() if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    policy_loss(client, **flat, sequence_lengths=[3, 3]).backward()
    np.testing.assert_array_equal(log_probs.grad.numpy(), GRADIENT)
