"""Methods and settings as trainers' configurations write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import counterweight_rl as cw
from counterweight_rl.hooks._method import read_method

LOSS = {"surrogate": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}


@pytest.mark.parametrize(
    ("value", "method"),
    [
        ("token_tis", "token_tis"),
        ({"preset": "token_tis", "upper": 3.0}, cw.Preset("token_tis", upper=3.0)),
        (' {"preset": "token_tis", "upper": 3.0}', cw.Preset("token_tis", upper=3.0)),
        (
            {"dialect": "verl", "release": "0.9.0", "rollout_is": "token"},
            cw.Dialect("verl", {"rollout_is": "token"}, release="0.9.0"),
        ),
        (
            {"preset": "token_tis", "policy_loss": LOSS},
            cw.Preset(
                "token_tis",
                policy_loss=cw.PolicyLoss(
                    surrogate=cw.Surrogate.GSPO,
                    clip_low=3e-4,
                    clip_high=4e-4,
                    aggregation=cw.LossAggregation.TOKEN_SUM,
                    denominator=cw.LossDenominator.ORIGINAL,
                ),
            ),
        ),
    ],
)
def test_forms(value: Any, method: Any) -> None:
    assert read_method("method", value) == method


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must be a preset's name or a mapping; got ''"),
        (["token_tis"], r"must be a preset's name or a mapping; got \['token_tis'\]"),
        ("{preset: x}", "is not valid JSON: Expecting property name"),
        ({}, 'must have one of the keys "preset" and "dialect"; got {}'),
        ({"preset": "a", "dialect": "verl"}, 'must have one of the keys "preset" and "dialect"'),
        ({"preset": 3}, "preset must be a name; got 3"),
        ({"dialect": None}, "dialect must be a name; got None"),
        ({"preset": "a", "policy_loss": "ppo"}, "must be a mapping; got 'ppo'"),
        ({"preset": "a", "policy_loss": {}}, "surrogate is missing"),
        (
            {"preset": "a", "policy_loss": {"surogate": "gspo"}},
            r"has no field 'surogate'; did you mean 'surrogate'\?",
        ),
        (
            {"preset": "a", "policy_loss": {**LOSS, "aggregation": "token_mean"}},
            "aggregation is the trainer's to determine",
        ),
    ],
)
def test_wrong_forms_name_the_setting(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^method(\.policy_loss)?[. ]{message}"):
        read_method("method", value)


def test_a_method_of_arguments_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    from counterweight_rl.hooks import _arguments

    monkeypatch.setenv("COUNTERWEIGHT_METHOD", '{"preset": "token_tis"}')
    assert _arguments.method_of(SimpleNamespace()) == cw.Preset("token_tis")
    assert _arguments.method_of(SimpleNamespace(counterweight_method="icepop")) == "icepop"
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", "")
    assert _arguments.method_of(SimpleNamespace(counterweight_method=None)) is None
