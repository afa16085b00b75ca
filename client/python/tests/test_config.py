"""The dataclasses mirror the contract: every field, every choice, both directions."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field

import counterweight_rl as cw
from counterweight_rl import choices, config, group_baseline, info, messages, result
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import group_baseline_pb2, method_pb2, tensor_pb2
from counterweight_rl.arrays import framing
from counterweight_rl.contract.tensors import DTYPE_PREFIX, ROLE_PREFIX, DType, TensorRole

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
    sequence_filter=cw.SequenceFilter(ratio_source=cw.RatioSource.CURRENT_ROLLOUT, upper=1.5),
)


MESSAGES: dict[type[Any], Any] = {
    cw.CorrectionConfig: method_pb2.CorrectionConfig,
    cw.GlobalCounts: service_pb2.GlobalCounts,
    cw.GroupBaseline: group_baseline_pb2.GroupBaseline,
    cw.ImportanceWeight: method_pb2.ImportanceWeight,
    cw.KlPenalty: method_pb2.KlPenalty,
    cw.PolicyLoss: method_pb2.PolicyLoss,
    cw.RejectionRule: method_pb2.RejectionRule,
    cw.SequenceFilter: method_pb2.SequenceFilter,
    info.Device: service_pb2.Device,
    info.DialectReleases: service_pb2.DialectReleases,
    info.Limits: service_pb2.Limits,
    info.MethodInfo: method_pb2.MethodInfo,
    info.ParameterInfo: method_pb2.ParameterInfo,
    info.Release: service_pb2.Release,
    info.ServerInfo: service_pb2.GetServerInfoResponse,
    result.RuleSummary: service_pb2.RuleSummary,
    result.Staleness: service_pb2.StalenessSummary,
    result.StalenessBucket: service_pb2.StalenessBucket,
    result.Timing: service_pb2.Timing,
}
SHORT = (Field.CPPTYPE_INT32, Field.CPPTYPE_UINT32)
INTEGERS = (Field.CPPTYPE_INT64, Field.CPPTYPE_UINT64, *SHORT)
SCALARS = {
    bool: (Field.CPPTYPE_BOOL,),
    bytes: (Field.CPPTYPE_STRING,),
    float: (Field.CPPTYPE_DOUBLE,),
    int: INTEGERS,
    str: (Field.CPPTYPE_STRING,),
}


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_dataclass_has_every_field(cls: type[Any]) -> None:
    """With a type from which the conversion knows the field's."""
    known = MESSAGES[cls].DESCRIPTOR.fields_by_name
    hints = get_type_hints(cls)
    assert hints.keys() == set(known)
    for name, hint in hints.items():
        kind, of = hint, known[name].message_type
        if of is not None and of.GetOptions().map_entry:
            (key, kind), known_value = get_args(hint), of.fields_by_name["value"]
            assert key is str
            assert known_value.cpp_type in SCALARS[kind]
            continue
        while get_args(kind):
            kind = get_args(kind)[0]
        if kind in SCALARS:
            assert known[name].cpp_type in SCALARS[kind], name
        elif kind in MESSAGES:
            assert of is MESSAGES[kind].DESCRIPTOR, name
        else:
            assert known[name].enum_type.name == kind.__name__, name
        if cls.__module__ in {config.__name__, group_baseline.__name__} and kind is int:
            assert (known[name].cpp_type in SHORT) == (name in messages._SHORT)


@pytest.mark.parametrize("cls", choices.Choice.__subclasses__(), ids=lambda cls: cls.__name__)
def test_enum_has_every_choice(cls: Any) -> None:
    modules = (method_pb2, tensor_pb2, service_pb2, group_baseline_pb2)
    (module,) = (each for each in modules if hasattr(each, cls.__name__))
    names = [value.name for value in getattr(module, cls.__name__).DESCRIPTOR.values]
    assert names[1:] == [messages.choice_name("", choice, cls) for choice in cls]
    assert all(c.value == c.name.lower() for c in cls)


@pytest.mark.parametrize("cls", [TensorRole, DType])
def test_numbers_of_tensors_are_the_contracts(cls: Any) -> None:
    prefix = {TensorRole: ROLE_PREFIX, DType: DTYPE_PREFIX}[cls]
    known = getattr(tensor_pb2, cls.__name__)
    assert dict(known.items()) == {prefix + each.name: each.value for each in cls}


def sent(method: cw.Method) -> method_pb2.Method:
    """Returns what a server gets."""
    return framing.to_request({"method": messages.method_to_message(method)}).method


def test_config_goes_there_and_back() -> None:
    message = sent(FULL).config
    assert message.importance_weight.HasField("after_rule")
    assert not message.rules[0].HasField("lower")
    for read, expected in ((message, FULL), (method_pb2.CorrectionConfig(), cw.CorrectionConfig())):
        assert messages.from_message(cw.CorrectionConfig, framing.to_json(read)) == expected


def test_absent_and_unknown_values_are_read() -> None:
    """Those of an older server, and of a newer one."""
    read = messages.from_message
    assert read(result.Timing, {}) == cw.Timing(0.0, 0.0, 0.0, 0.0)
    assert read(result.StalenessBucket, {"first": "9"}) == cw.StalenessBucket(9, None, 0, 0.0, 0.0)
    assert read(info.ServerInfo, {"more": 1}).limits is None
    assert read(info.Device, {"uuid": "AP8=", "memoryBytes": str(2**63)}) == info.Device(
        0, "", 2**63, b"\x00\xff"
    )
    rule = read(cw.RejectionRule, {"estimator": "ESTIMATOR_K3", "effect": 99})
    assert (rule.estimator, rule.effect, rule.condition) == (cw.Estimator.K3, "99", None)


def test_empty_config_is_a_method() -> None:
    assert sent(cw.CorrectionConfig()).WhichOneof("method") == "config"


def test_choices_may_be_text() -> None:
    weight = cw.ImportanceWeight(ratio_source="old_rollout", level="token", bound="none")  # type: ignore[arg-type]
    message = sent(cw.CorrectionConfig(importance_weight=weight))
    assert message.config.importance_weight.level == method_pb2.LEVEL_TOKEN
    assert f"{cw.Level.TOKEN}" == "token"


@pytest.mark.parametrize("wrong", ["tokens", "unspecified", ""])
def test_unknown_choice_names_field_and_choices(wrong: Any) -> None:
    weight = cw.ImportanceWeight(
        ratio_source=cw.RatioSource.OLD_ROLLOUT, level=wrong, bound=cw.Bound.NONE
    )
    with pytest.raises(ValueError, match=r"method\.importance_weight\.level .*token, sequence"):
        messages.method_to_message(cw.CorrectionConfig(importance_weight=weight))


def test_wrong_types_name_the_field() -> None:
    with pytest.raises(TypeError, match=r"method\.rules\[0\] must be a RejectionRule"):
        messages.method_to_message(cw.CorrectionConfig(rules=[FULL.importance_weight]))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="method must be"):
        messages.method_to_message({"rollout_is": "token"})  # type: ignore[arg-type]
    penalty = cw.KlPenalty(estimator=cw.KlEstimator.K1, coefficient="big")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"method\.kl_penalty\.coefficient must be a number, not str"
    ):
        messages.method_to_message(cw.CorrectionConfig(kl_penalty=penalty))
    with pytest.raises(TypeError, match=r"method\.parameters\[upper\] must be a number, not str"):
        messages.method_to_message(cw.Preset("token_tis", upper="3"))  # type: ignore[arg-type]


def test_presets() -> None:
    assert sent("token_tis").preset == method_pb2.Preset(name="token_tis")
    preset = cw.Preset("token_tis", upper=np.float32(3), name=1, allow_unknown=True)
    assert preset == cw.Preset("token_tis", upper=3.0, name=1, allow_unknown=True)
    message = sent(preset).preset
    assert dict(message.parameters) == {"upper": 3.0, "name": 1.0}


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("token_tsi", {}, r"method: no preset is called 'token_tsi'; did you mean 'token_tis'\?"),
        ("x" * 100, {"a": 1}, "method: no preset is called 'x{100}'$"),
        (
            "token_tis",
            {"uper": 2},
            r"method\.parameters\[uper\]: token_tis has no such parameter; it takes upper; "
            r"did you mean 'upper'\?",
        ),
        ("none", {"upper": 2}, "none has no such parameter; it takes none"),
    ],
)
def test_unknown_names_of_presets_are_refused_where_they_are_written(
    name: str, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(cw.InvalidRequestError, match=message):
        cw.Preset(name, **parameters)
    preset = cw.Preset(name, allow_unknown=True, **parameters)
    assert (preset.name, preset.parameters) == (name, parameters)
    # A copy is not checked again.
    assert pickle.loads(pickle.dumps(preset)) == preset


def test_every_wrong_parameter_is_named() -> None:
    with pytest.raises(cw.InvalidRequestError) as raised:
        cw.Preset("geo_rs", lower=1, keep_lower=0.9, upper=2)
    fields = [violation.field for violation in raised.value.violations]
    assert fields == ["method.parameters[lower]", "method.parameters[upper]"]


def test_presets_with_a_loss() -> None:
    preset = cw.Preset(
        "token_tis", upper=3.0, policy_loss=FULL.policy_loss, kl_penalty=FULL.kl_penalty
    )
    assert preset != cw.Preset("token_tis", upper=3.0)
    message = sent(preset).preset
    assert dict(message.parameters) == {"upper": 3.0}
    read = framing.to_json(message)
    assert messages.field(cw.CorrectionConfig, "policy_loss", read) == FULL.policy_loss
    assert messages.field(cw.CorrectionConfig, "kl_penalty", read) == FULL.kl_penalty
    with pytest.raises(TypeError, match=r"method\.kl_penalty must be a KlPenalty, not float"):
        messages.method_to_message(cw.Preset("token_tis", kl_penalty=0.1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"method\.policy_loss\.surrogate must be one of ppo_clip"):
        messages.method_to_message(
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
    message = sent(cw.Dialect("verl", block, ignore_unknown_fields=True)).dialect
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
    assert sent(cw.Dialect("verl")).dialect.HasField("block")


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
        messages.method_to_message(cw.Dialect("verl", block))
