"""Each function that takes a batch shows its arguments, and refuses others."""

from __future__ import annotations

import ast
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
TYPED_DICTS = ("Settings", "LossArguments", "CorrectArguments")


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


def test_checkers_of_types_see_the_same_arguments() -> None:
    """The two lists of calls.py; one exists for checkers alone, which compare the types."""
    listed: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(calls))):
        if isinstance(node, ast.ClassDef) and node.name in TYPED_DICTS:
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            listed |= {ast.unparse(f.target): ast.unparse(f.annotation) for f in fields}
    expected = {
        name: p.annotation if p.default is not p.empty else f"Required[{p.annotation}]"
        for name, p in ARGUMENTS.items()
    }
    assert listed == expected


@pytest.mark.parametrize("function", TAKES_A_BATCH, ids=lambda f: f.__qualname__)
def test_unknown_arguments_are_refused_at_once(function: Callable[..., Any]) -> None:
    given: dict[str, Any] = {"response_mask": None, "method": "token_tis", "sead": 1}

    async def ask() -> None:
        with cw.Client("localhost:1") as client:
            answer = function(client, **given)
            if inspect.isawaitable(answer):
                await answer

    with pytest.raises(TypeError, match="got an unexpected keyword argument 'sead'"):
        asyncio.run(ask())


@pytest.mark.parametrize("function", TAKES_A_BATCH, ids=lambda f: f.__qualname__)
def test_missing_arguments_are_refused_at_once(function: Callable[..., Any]) -> None:
    async def ask() -> None:
        with cw.Client("localhost:1") as client:
            answer = function(client, response_mask=None)
            if inspect.isawaitable(answer):
                await answer

    with pytest.raises(TypeError, match=r"missing .*keyword.* argument:? 'method'"):
        asyncio.run(ask())


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
    with pytest.raises(TypeError, match=f"{name}.. got an unexpected keyword argument 'outputs'"):
        function(None, current_log_probs=None, advantages=None, outputs=("loss",))

    class Client:
        correct = staticmethod(_raise_keywords)

    given: dict[str, Any] = {p.name: object() for p in parameters}
    given["current_log_probs"] = cw_torch.torch.zeros(1)
    with pytest.raises(_CalledError) as called:
        function(Client(), **given)
    (passed,) = called.value.args
    passed.pop("outputs", None)
    assert passed == given


def test_an_operator_takes_settings_that_stay_the_same() -> None:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    from counterweight_rl.torch_operator import PolicyLossOperator

    names = inspect.signature(PolicyLossOperator).parameters.keys()
    assert names - {"client"} == {"method", *calls.Settings.__annotations__}
    with pytest.raises(TypeError, match="unexpected keyword argument 'replicas'; did you mean"):
        PolicyLossOperator(None, method="token_tis", replicas="a")  # type: ignore[arg-type]
