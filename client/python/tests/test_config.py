"""The dataclasses mirror the contract: every field, every choice, both directions."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

import counterweight_rl as cw
from counterweight_rl import messages
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import method_pb2, tensor_pb2

FULL = cw.CorrectionConfig(
    importance_weight=cw.ImportanceWeight(
        ratio_source=cw.RatioSource.OLD_ROLLOUT,
        level=cw.Level.GEOMETRIC,
        bound=cw.Bound.TRUNCATE,
        token_clamp=20.0,
        aggregate_clamp=10.0,
        lower=0.0,
        upper=2.0,
        normalize=True,
        after_rule=0,
    ),
    rules=(
        cw.RejectionRule(
            ratio_source=cw.RatioSource.CURRENT_ROLLOUT,
            estimator=cw.Estimator.K3,
            aggregation=cw.Aggregation.PREFIX_MEAN,
            upper=0.5,
            condition=cw.RuleCondition.NEGATIVE_ADVANTAGE,
            effect=cw.RuleEffect.ZERO_WEIGHT,
            name="mine",
        ),
        cw.RejectionRule(
            ratio_source=cw.RatioSource.CURRENT_OLD,
            estimator=cw.Estimator.RATIO,
            aggregation=cw.Aggregation.ALL,
            lower=1e-4,
        ),
    ),
    rule_evaluation=cw.RuleEvaluation.SEQUENTIAL,
    drift_source=cw.RatioSource.CURRENT_OLD,
    policy_loss=cw.PolicyLoss(
        surrogate=cw.Surrogate.CISPO,
        aggregation=cw.LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM,
        denominator=cw.LossDenominator.GLOBAL,
        clip_low=0.2,
        allow_double_correction=True,
    ),
    kl_penalty=cw.KlPenalty(estimator=cw.KlEstimator.ABS, coefficient=0.1, straight_through=True),
)


@pytest.mark.parametrize(("name", "cls"), sorted(messages._DATACLASSES.items()))
def test_dataclass_has_every_field(name: str, cls: type[Any]) -> None:
    message = getattr(method_pb2, name, None) or getattr(service_pb2, name)
    assert {f.name for f in dataclasses.fields(cls)} == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(("name", "cls"), sorted(messages._ENUMS.items()))
def test_enum_has_every_choice(name: str, cls: Any) -> None:
    modules = (method_pb2, tensor_pb2, service_pb2)
    (module,) = (each for each in modules if hasattr(each, name))
    descriptor = getattr(module, name).DESCRIPTOR
    prefix = descriptor.values[0].name.removesuffix("UNSPECIFIED")
    assert [v.name for v in descriptor.values[1:]] == [prefix + c.name for c in cls]
    assert all(c.value == c.name.lower() for c in cls)


def test_config_goes_there_and_back() -> None:
    message = messages.method_to_proto(FULL).config
    assert message.importance_weight.HasField("after_rule")
    assert not message.rules[0].HasField("lower")
    assert messages.from_proto(message, cw.CorrectionConfig) == FULL
    assert messages.from_proto(method_pb2.CorrectionConfig(), cw.CorrectionConfig) == (
        cw.CorrectionConfig()
    )


def test_empty_config_is_a_method() -> None:
    assert messages.method_to_proto(cw.CorrectionConfig()).WhichOneof("method") == "config"


def test_choices_may_be_text() -> None:
    weight = cw.ImportanceWeight(ratio_source="old_rollout", level="token", bound="none")  # type: ignore[arg-type]
    message = messages.method_to_proto(cw.CorrectionConfig(importance_weight=weight))
    assert message.config.importance_weight.level == method_pb2.LEVEL_TOKEN
    assert f"{cw.Level.TOKEN}" == "token"


@pytest.mark.parametrize("wrong", ["tokens", "unspecified", ""])
def test_unknown_choice_names_field_and_choices(wrong: Any) -> None:
    weight = cw.ImportanceWeight(
        ratio_source=cw.RatioSource.OLD_ROLLOUT, level=wrong, bound=cw.Bound.NONE
    )
    with pytest.raises(ValueError, match=r"method\.importance_weight\.level .*token, sequence"):
        messages.method_to_proto(cw.CorrectionConfig(importance_weight=weight))


def test_wrong_types_name_the_field() -> None:
    with pytest.raises(TypeError, match=r"method\.rules\[0\] must be a RejectionRule"):
        messages.method_to_proto(cw.CorrectionConfig(rules=[FULL.importance_weight]))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="method must be"):
        messages.method_to_proto({"rollout_is": "token"})  # type: ignore[arg-type]
    penalty = cw.KlPenalty(estimator=cw.KlEstimator.K1, coefficient="big")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"method\.kl_penalty\.coefficient must be a number, not str"
    ):
        messages.method_to_proto(cw.CorrectionConfig(kl_penalty=penalty))
    with pytest.raises(TypeError, match=r"method\.parameters\[upper\] must be a number, not str"):
        messages.method_to_proto(cw.Preset("token_tis", upper="3"))  # type: ignore[arg-type]


def test_presets() -> None:
    assert messages.method_to_proto("token_tis").preset == method_pb2.Preset(name="token_tis")
    preset = cw.Preset("token_tis", upper=np.float32(3), name=1)
    assert preset == cw.Preset("token_tis", upper=3.0, name=1)
    message = messages.method_to_proto(preset).preset
    assert dict(message.parameters) == {"upper": 3.0, "name": 1.0}


def test_presets_with_a_loss() -> None:
    preset = cw.Preset(
        "token_tis", upper=3.0, policy_loss=FULL.policy_loss, kl_penalty=FULL.kl_penalty
    )
    assert preset != cw.Preset("token_tis", upper=3.0)
    message = messages.method_to_proto(preset).preset
    assert dict(message.parameters) == {"upper": 3.0}
    assert messages.from_proto(message.policy_loss, cw.PolicyLoss) == FULL.policy_loss
    assert messages.from_proto(message.kl_penalty, cw.KlPenalty) == FULL.kl_penalty
    with pytest.raises(TypeError, match=r"method\.kl_penalty must be a KlPenalty, not float"):
        messages.method_to_proto(cw.Preset("token_tis", kl_penalty=0.1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"method\.policy_loss\.surrogate must be one of ppo_clip"):
        messages.method_to_proto(
            cw.Preset(
                "token_tis",
                policy_loss=cw.PolicyLoss(
                    surrogate="ppo",  # type: ignore[arg-type]
                    aggregation=cw.LossAggregation.TOKEN_MEAN,
                    denominator=cw.LossDenominator.KEPT,
                ),
            )
        )


def test_dialect_block_keeps_types() -> None:
    block = OrderedDict(
        text="0.5_2.0",
        flag=True,
        numpy_flag=np.bool_(False),
        number=2,
        numpy_number=np.float64(0.5),
        nothing=None,
        listed=(1, "a", [None]),
        nested=MappingProxyType({"deep": {}}),
    )
    message = messages.method_to_proto(
        cw.Dialect("verl", block, ignore_unknown_fields=True)
    ).dialect
    assert message.system == "verl"
    assert message.ignore_unknown_fields
    assert json_format.MessageToDict(message.block) == {
        "text": "0.5_2.0",
        "flag": True,
        "numpy_flag": False,
        "number": 2.0,
        "numpy_number": 0.5,
        "nothing": None,
        "listed": [1.0, "a", [None]],
        "nested": {"deep": {}},
    }
    assert messages.method_to_proto(cw.Dialect("verl")).dialect.HasField("block")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"a": {"b": b"x"}}, r"block\.a\.b: .* bytes"),
        ({"a": [object()]}, r"block\.a\[0\]: .* object"),
        ({1: 2}, "keys must be strings, not int"),
        ("rollout_is: token", "block must be a mapping, not str"),
    ],
)
def test_dialect_block_refuses_by_path(block: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        messages.method_to_proto(cw.Dialect("verl", block))
