"""The registered operator: its laws, and its bytes under torch.compile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from batches import packed, padded_batch
from transports import LOSS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
from counterweight_rl.torch import policy_loss  # noqa: E402
from counterweight_rl.torch_operator import PolicyLossOperator  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def local(local_library: None) -> Iterator[cw.Client]:
    with cw.Client("local:") as client:
        yield client


@pytest.fixture(autouse=True)
def forgotten_graphs() -> Iterator[None]:
    yield
    torch.compiler.reset()


def tensors(
    dtype: Any = torch.float32, *, is_packed: bool = False, seed: int = 0
) -> dict[str, Any]:
    batch = padded_batch(6, 40, seed=seed)
    if is_packed:
        batch = packed(batch)
        batch.pop("padded_length")
    made = {name: torch.from_numpy(array) for name, array in batch.items()}
    made["current_log_probs"] = made["current_log_probs"].to(dtype).requires_grad_()
    return made


def expected(client: cw.Client, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """The loss and the gradient of policy_loss, scaled by 3."""
    own = inputs["current_log_probs"].detach().clone().requires_grad_()
    loss = policy_loss(client, method=LOSS, **{**inputs, "current_log_probs": own})
    (loss * 3).backward()
    return loss, own.grad


def assert_same(loss: Any, gradient: Any, other: tuple[Any, Any]) -> None:
    for mine, theirs in ((loss, other[0]), (gradient, other[1])):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert torch.equal(mine.detach(), theirs.detach())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_opcheck(local: cw.Client, dtype: Any, is_packed: bool) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    inputs = tensors(dtype, is_packed=is_packed)
    for with_gradient in (True, False):
        if not with_gradient:
            inputs["current_log_probs"] = inputs["current_log_probs"].detach()
        torch.library.opcheck(
            torch.ops.counterweight.policy_loss.default,
            (
                operator._number,
                inputs["current_log_probs"],
                inputs["response_mask"],
                inputs["advantages"],
                inputs["rollout_log_probs"],
                inputs["old_log_probs"],
                None,
                inputs.get("sequence_lengths"),
                with_gradient,
            ),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_compiling_it_is_policy_loss(local: cw.Client, dtype: Any) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    inputs = tensors(dtype)
    loss = operator(**inputs)
    (loss * 3).backward()
    assert_same(loss, inputs["current_log_probs"].grad, expected(local, inputs))


@pytest.mark.parametrize(
    ("backend", "is_packed"),
    [("eager", False), ("aot_eager", False), ("aot_eager", True), ("inductor", False)],
)
def test_compiled_in_one_graph(local: cw.Client, backend: str, is_packed: bool) -> None:
    operator = PolicyLossOperator(local, method=LOSS)

    @torch.compile(fullgraph=True, backend=backend)
    def step(**inputs: Any) -> Any:
        loss = operator(**inputs)
        return loss, loss * 3

    for seed in (0, 1):
        inputs = tensors(is_packed=is_packed, seed=seed)
        loss, scaled = step(**inputs)
        scaled.backward()
        assert_same(loss, inputs["current_log_probs"].grad, expected(local, inputs))


def test_a_model_around_it(local: cw.Client) -> None:
    """The gradient reaches the weights of a compiled model, also with dynamic shapes."""
    operator = PolicyLossOperator(local, method=LOSS)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)

    def step(loss_of: Any, features: Any, inputs: dict[str, Any]) -> Any:
        log_probs = torch.nn.functional.logsigmoid(model(features)).squeeze(-1)
        return loss_of(current_log_probs=log_probs, **inputs)

    compiled = torch.compile(
        lambda features, inputs: step(operator, features, inputs),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    for rows, width in ((6, 40), (3, 17)):
        inputs = {n: torch.from_numpy(a) for n, a in padded_batch(rows, width).items()}
        inputs.pop("current_log_probs")
        features = torch.randn(rows, width, 8)
        compiled(features, inputs).backward()
        found = model.weight.grad
        model.zero_grad()
        step(lambda **given: policy_loss(local, method=LOSS, **given), features, inputs).backward()
        assert torch.equal(found, model.weight.grad)
        model.zero_grad()


def test_no_gradient_is_asked_for_without_autograd(local: cw.Client) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    step = torch.compile(lambda **inputs: operator(**inputs), fullgraph=True, backend="aot_eager")
    inputs = tensors()
    with torch.no_grad():
        assert not step(**inputs).requires_grad
    assert step(**inputs).requires_grad
    inputs["current_log_probs"] = inputs["current_log_probs"].detach()
    assert not step(**inputs).requires_grad


def test_the_result_of_the_last_call(local: cw.Client) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    assert operator.last_result is None
    inputs = tensors()
    torch.compile(lambda **given: operator(**given), fullgraph=True, backend="aot_eager")(**inputs)
    direct = local.correct(
        method=LOSS, **{**inputs, "current_log_probs": inputs["current_log_probs"].detach()}
    )
    assert operator.last_result is not None
    assert operator.last_result.metrics == direct.metrics
    assert operator.last_result.gradient is None


def test_errors_pass_through_compiled_code(local: cw.Client) -> None:
    operator = PolicyLossOperator(local, method="token_tis")
    step = torch.compile(lambda **inputs: operator(**inputs), fullgraph=True, backend="aot_eager")
    for call in (operator, step):
        with pytest.raises(cw.InvalidRequestError, match="the method has none"):
            call(**tensors())


def test_second_derivatives_are_refused(local: cw.Client) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    inputs = tensors()
    scale = torch.tensor(2.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        operator(**inputs) * scale, inputs["current_log_probs"], create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_other_inputs_get_no_gradient(local: cw.Client) -> None:
    operator = PolicyLossOperator(local, method=LOSS)
    inputs = tensors()
    others = ("old_log_probs", "rollout_log_probs", "advantages")
    for name in others:
        inputs[name].requires_grad_()
    operator(**inputs).backward()
    assert all(inputs[name].grad is None for name in others)


def test_a_lost_operator(local: cw.Client) -> None:
    inputs = tensors()
    number = PolicyLossOperator(local, method=LOSS)._number
    gc.collect()
    arguments = [inputs[n] for n in ("current_log_probs", "response_mask", "advantages")]
    with pytest.raises(RuntimeError, match="no longer exists"):
        torch.ops.counterweight.policy_loss(number, *arguments, None, None, None, None, True)


def test_a_method_may_make_its_own_advantages(local: cw.Client) -> None:
    inputs = tensors()
    del inputs["advantages"]
    with pytest.raises(cw.InvalidRequestError, match="advantages is required"):
        policy_loss(local, method=LOSS, **inputs)
    inputs["ref_log_probs"] = inputs.pop("old_log_probs")
    method = cw.Dialect("prime_rl", {"type": "ref_kl"})
    own = inputs["current_log_probs"].detach().clone().requires_grad_()
    expected_loss = policy_loss(local, method=method, **{**inputs, "current_log_probs": own})
    expected_loss.backward()
    operator = PolicyLossOperator(local, method=method)
    loss = torch.compile(operator, fullgraph=True)(**inputs)
    loss.backward()
    assert torch.equal(loss, expected_loss)
    assert torch.equal(inputs["current_log_probs"].grad, own.grad)
    assert own.grad.any()
