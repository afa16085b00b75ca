"""Each function that takes a batch spells out its arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl import calls

CLIENTS = (cw.Client, counterweight_rl.aio.Client)
TAKES_A_BATCH = (cw.Client.correct, cw.Client.submit, counterweight_rl.aio.Client.correct)
ARGUMENTS = inspect.signature(calls.correct).parameters


class _CalledError(Exception):
    """Carries the keywords of a call."""


def _raise_keywords(**keywords: Any) -> Any:
    raise _CalledError(keywords)


def _described_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """Returns the text of each argument in one line."""
    documentation = inspect.getdoc(function) or ""
    described: dict[str, str] = {}
    for line in documentation.partition("Args:\n")[2].partition("\n\n")[0].splitlines():
        name, _, text = line.strip().partition(": ")
        if line.startswith("     "):
            described[list(described)[-1]] += f" {line.strip()}"
        else:
            described[name] = text
    return described


@pytest.mark.parametrize("function", TAKES_A_BATCH, ids=lambda f: f.__qualname__)
def test_every_client_takes_the_same_batch(function: Callable[..., Any]) -> None:
    this, *parameters = inspect.signature(function).parameters.values()
    assert this.name == "self"
    assert parameters == list(ARGUMENTS.values())
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters)


def test_both_clients_describe_each_argument_alike() -> None:
    sync, aio = (_described_arguments(client.correct) for client in CLIENTS)
    assert sync == aio
    assert list(sync) == list(ARGUMENTS)


@pytest.mark.parametrize("name", ["list_methods", "server_info"])
def test_the_other_calls_are_alike(name: str) -> None:
    sync, aio = (getattr(client, name) for client in CLIENTS)
    assert inspect.signature(sync) == inspect.signature(aio)
    assert inspect.getdoc(sync) == inspect.getdoc(aio)
    assert list(_described_arguments(sync)) == ["timeout"]


@pytest.mark.parametrize("function", TAKES_A_BATCH, ids=lambda f: f.__qualname__)
def test_every_argument_arrives(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    monkeypatch.setattr(calls, "correct", _raise_keywords)
    given: dict[str, Any] = {name: object() for name in ARGUMENTS}

    async def ask() -> None:
        with cw.Client("localhost:1") as client:
            answer = function(client, **given)
            await (answer if inspect.isawaitable(answer) else asyncio.wrap_future(answer))

    with pytest.raises(_CalledError) as called:
        asyncio.run(ask())
    assert called.value.args == (given,)


@pytest.mark.parametrize("name", ["policy_loss", "policy_loss_with_result"])
def test_a_policy_loss_takes_what_a_correction_does(name: str) -> None:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    from counterweight_rl import torch as cw_torch

    function = getattr(cw_torch, name)
    client, *parameters = inspect.signature(function).parameters.values()
    assert client.name == "client"
    assert {p.name for p in parameters} == ARGUMENTS.keys() - {"outputs"}
    for parameter in parameters:
        expected = ARGUMENTS[parameter.name]
        assert parameter.annotation in (
            expected.annotation.replace("ArrayT", "torch.Tensor"),
            "torch.Tensor",  # needed for any loss
        )
        assert parameter.default in (expected.default, inspect.Parameter.empty)

    class Client:
        correct = staticmethod(_raise_keywords)

    given: dict[str, Any] = {p.name: object() for p in parameters}
    given["current_log_probs"] = cw_torch.torch.zeros(1)
    with pytest.raises(_CalledError) as called:
        function(Client(), **given)
    (passed,) = called.value.args
    del passed["outputs"]
    assert passed == given


def test_the_documentation_of_a_policy_loss_agrees() -> None:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    from counterweight_rl.torch import policy_loss

    described = _described_arguments(policy_loss)
    assert described.keys() == {"client", *ARGUMENTS} - {"outputs"}
    of_a_client = _described_arguments(cw.Client.correct)
    # A loss documents its own tensors in more detail.
    own = {"client", "method", "response_mask", "advantages", "ref_log_probs"} | {
        f"{policy}_log_probs" for policy in ("current", "old", "rollout")
    }
    for name in described.keys() - own:
        assert described[name] == of_a_client[name]
