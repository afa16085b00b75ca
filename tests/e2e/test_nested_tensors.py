"""torch's nested tensors, which are the packed layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import pytest

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.torch import policy_loss_with_result  # noqa: E402
from counterweight_rl.torch_operator import PolicyLossOperator  # noqa: E402

LENGTHS = [3, 0, 5, 1, 4]
OFFSETS = torch.tensor([0, 3, 3, 8, 9, 13])
OUTPUTS = ("weights", "keep_mask", "token_reasons", "sequence_reasons")


def jagged(values: Any) -> Any:
    return torch.nested.nested_tensor_from_jagged(values, OFFSETS)


def strided(values: Any) -> Any:
    return torch.nested.as_nested_tensor(list(values.split(LENGTHS)))


def packed() -> dict[str, Any]:
    source = torch.Generator().manual_seed(7)
    size = sum(LENGTHS)
    rollout = -torch.rand(size, generator=source)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": rollout + 0.3 * torch.randn(size, generator=source),
        "current_log_probs": rollout + 0.3 * torch.randn(size, generator=source),
        "advantages": torch.randn(size, generator=source),
        "response_mask": torch.rand(size, generator=source) < 0.8,
        "policy_versions": torch.randint(-1, 4, (size,), generator=source),
    }


Nest = Callable[[Any], Any]
LAYOUTS = pytest.mark.parametrize("nest", [jagged, strided])


@pytest.fixture(params=["server", "local"])
def service(
    request: pytest.FixtureRequest, client: cw.Client, local_library: None
) -> Iterator[cw.Client]:
    if request.param == "server":
        yield client
        return
    with cw.Client("local:") as local:
        yield local


def flat(nested: Any) -> list[Any]:
    return [part.tolist() for part in nested.unbind()]


def parts(values: Any) -> list[Any]:
    return [part.tolist() for part in values.split(LENGTHS)]


@LAYOUTS
def test_answers_are_those_of_the_packed_layout(service: cw.Client, nest: Nest) -> None:
    batch = packed()
    settings: dict[str, Any] = {"method": "geo_rs_token_tis", "outputs": OUTPUTS}
    settings["policy_version"] = 4
    expected = service.correct(sequence_lengths=LENGTHS, **batch, **settings)
    nested = {name: nest(tensor) for name, tensor in batch.items()}
    for result in (
        service.correct(**nested, **settings),
        service.submit(**nested, **settings).result(),
    ):
        for name in ("weights", "keep_mask", "token_reasons"):
            answer = getattr(result, name)
            assert answer.is_nested
            assert answer.layout == nested["response_mask"].layout
            assert flat(answer) == parts(getattr(expected, name))
        assert torch.equal(result.sequence_reasons, expected.sequence_reasons)
        assert result.keep_mask.dtype == torch.bool
        assert result.metrics == expected.metrics
        # As text, because a bucket without tokens has NaN.
        assert str(result.staleness) == str(expected.staleness)


def test_answers_meet_the_callers_jagged_tensors(service: cw.Client) -> None:
    """They share offsets, without which torch refuses to multiply them."""
    batch = packed()
    batch["response_mask"] = batch["response_mask"].float()
    nested = {name: jagged(tensor) for name, tensor in batch.items()}
    del nested["policy_versions"]
    result = service.correct(method="token_tis", **nested)
    loss = (nested["advantages"] * result.weights * result.keep_mask).sum()
    weights = result.weights.values()
    assert torch.allclose(loss, (batch["advantages"] * weights * batch["response_mask"]).sum())


@LAYOUTS
def test_the_loss_has_the_gradient_of_the_packed_one(service: cw.Client, nest: Nest) -> None:
    batch = packed()
    del batch["policy_versions"]
    leaf = batch["current_log_probs"].clone().requires_grad_()
    settings: dict[str, Any] = {**batch, "method": "ppo_clip", "sequence_lengths": LENGTHS}
    expected, _ = policy_loss_with_result(service, **{**settings, "current_log_probs": leaf})
    expected.backward()
    nested = {name: nest(tensor) for name, tensor in batch.items()}
    # The caller's graph behind the nested tensor, and a nested leaf.
    behind = batch["current_log_probs"].clone().requires_grad_()
    loss, result = policy_loss_with_result(
        service, method="ppo_clip", **{**nested, "current_log_probs": nest(behind)}
    )
    (2 * loss).backward()
    assert loss == expected
    assert torch.equal(behind.grad, 2 * leaf.grad)
    assert flat(result.gradient) == parts(leaf.grad)
    own = nest(batch["current_log_probs"]).detach().requires_grad_()
    loss, _ = policy_loss_with_result(
        service, method="ppo_clip", **{**nested, "current_log_probs": own}
    )
    loss.backward()
    assert flat(own.grad) == parts(leaf.grad)
    behind.grad = None
    operator = PolicyLossOperator(service, method="ppo_clip")
    operator(**{**nested, "current_log_probs": nest(behind)}).backward()
    assert torch.equal(behind.grad, leaf.grad)


@LAYOUTS
@pytest.mark.parametrize("lengths", [LENGTHS, [0, 2, 1]])
def test_one_advantage_per_sequence(service: cw.Client, nest: Nest, lengths: list[int]) -> None:
    """Also where one per token would have its shape."""
    rows = len(lengths)
    size = sum(lengths)
    batch = {name: tensor[:size] for name, tensor in packed().items() if "versions" not in name}
    advantages = torch.arange(1.0, rows + 1)
    batch["advantages"] = advantages.repeat_interleave(torch.tensor(lengths))
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])

    def cut(values: Any) -> Any:
        if nest is jagged:
            return torch.nested.nested_tensor_from_jagged(values, offsets)
        return torch.nested.as_nested_tensor(list(values.split(lengths)))

    nested = {name: cut(tensor) for name, tensor in batch.items()}
    per_token = service.correct(method="ppo_clip", **nested)
    for given in (advantages, advantages[:, None]):
        result = service.correct(method="ppo_clip", **{**nested, "advantages": given})
        assert result.loss == per_token.loss


@LAYOUTS
@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"old_log_probs": lambda b, _: b}, TypeError, "old_log_probs is none; pass all nested"),
        ({"response_mask": lambda b, _: b}, TypeError, "response_mask is none; pass all nested"),
    ],
)
def test_kinds_do_not_mix(nest: Nest, change: dict[str, Any], error: Any, problem: str) -> None:
    batch = packed()
    nested = {name: nest(tensor) for name, tensor in batch.items() if name != "policy_versions"}
    with cw.Client("localhost:1") as absent, pytest.raises(error, match=problem):
        changed = {name: make(batch[name], nest) for name, make in change.items()}
        absent.correct(method="token_tis", **{**nested, **changed})


def other(lengths: list[int]) -> Any:
    return torch.nested.nested_tensor([torch.zeros(n) for n in lengths], layout=torch.jagged)


def holes() -> Any:
    starts = torch.tensor([0, 4, 5, 10, 12, 16])
    values = torch.zeros(16)
    return torch.nested.nested_tensor_from_jagged(values, starts, lengths=torch.tensor(LENGTHS))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (other([3, 0, 5, 4, 1]), "has 4 elements in sequence 3, but response_mask has 1"),
        (other([3, 5, 1, 4]), "has 4 sequences, but response_mask has 5"),
        (holes(), r"nested tensor with holes; pass old_log_probs\.contiguous\(\)"),
        (jagged(torch.zeros(13, 2)), "must be a nested tensor of"),
        (jagged(torch.zeros(13, dtype=torch.int64)), "must be float32"),
    ],
)
def test_what_cannot_be_packed(wrong: Any, problem: str) -> None:
    nested = {n: jagged(tensor) for n, tensor in packed().items() if n != "policy_versions"}
    with (
        cw.Client("localhost:1") as absent,
        pytest.raises((TypeError, ValueError), match=problem) as caught,
    ):
        absent.correct(method="token_tis", **{**nested, "old_log_probs": wrong})
    assert "old_log_probs" in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"sequence_lengths": LENGTHS}, "sequence_lengths: .* is nested and has the lengths"),
        ({"out": {"weights": torch.empty(13)}}, r"out\['weights'\]: is not for nested tensors"),
    ],
)
def test_arguments_that_nested_tensors_replace(setting: dict[str, Any], problem: str) -> None:
    nested = {n: jagged(tensor) for n, tensor in packed().items() if n != "policy_versions"}
    with cw.Client("localhost:1") as absent, pytest.raises(cw.InvalidRequestError, match=problem):
        absent.correct(method="token_tis", **nested, **setting)


def test_the_answer_of_identity_is_nested_too() -> None:
    nested = {n: jagged(tensor) for n, tensor in packed().items() if n != "policy_versions"}
    for name in ("current_log_probs", "advantages"):
        del nested[name]
    retry = cw.RetryPolicy(attempts=1)
    with cw.Client("localhost:1", on_unavailable="identity", retry=retry) as absent:
        result = absent.correct(method="token_tis", **nested)
    assert flat(result.keep_mask) == flat(nested["response_mask"])
