"""The server's messages, translated to arguments."""

from __future__ import annotations

import inspect
import re

import pytest

from counterweight_rl import calls, choices, translation
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

ARGUMENTS = inspect.signature(calls.correct).parameters
SENT = translation.Sent(
    ("rollout_log_probs", "old_log_probs", "response_mask"), ("weights", "gradient")
)
CHOICES = [
    member
    for enum in vars(choices).values()
    if isinstance(enum, type) and issubclass(enum, choices.Choice)
    for member in enum
]


def root(field: str) -> str:
    """Returns the argument of a field."""
    return re.split(r"[.\[]", field)[0]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("method", "method"),
        ("method.preset.name", "method"),
        ("method.preset.parameters[uper]", "method.parameters[uper]"),
        ("method.preset.policy_loss.clip_low", "method.policy_loss.clip_low"),
        ("method.config.rules[0].upper", "method.rules[0].upper"),
        ("method.dialect.system", "method.system"),
        ("method.dialect.block.layout", "method.block.layout"),
        ("tensors[OLD_LOG_PROBS]", "old_log_probs"),
        ("tensors[2].data", "response_mask"),
        ("outputs[1]", "outputs['gradient']"),
        ("outputs", "outputs"),
        ("layout.padded.num_sequences", "response_mask.shape[0]"),
        ("layout.padded.length", "response_mask.shape[1]"),
        ("layout.packed.sequence_lengths[3]", "sequence_lengths[3]"),
        ("layout.packed.padded_length", "padded_length"),
        ("layout.packed", "sequence_lengths"),
        ("labels.policy_version", "policy_version"),
        ("non_finite_policy", "non_finite"),
        ("compute_loss", "outputs['loss']"),
        ("global_counts.num_tokens", "global_counts.num_tokens"),
        # Paths that this client does not know stay unchanged.
        ("tensors[3].data", "tensors[3].data"),
        ("outputs[2]", "outputs[2]"),
        ("layouts.packed", "layouts.packed"),
        ("tensors[NEW_ROLE]", "tensors[NEW_ROLE]"),
        ("chunk.offset", "chunk.offset"),
        ("", ""),
    ],
)
def test_paths(path: str, field: str) -> None:
    assert translation.argument(path, SENT) == field


def test_every_field_of_the_request_is_an_argument() -> None:
    # Without fields that correct never sends, and fields made of several arguments.
    internal = {"trajectory_ids", "tensors", "destinations", "compute_loss", "audit", "shadows"}
    parts = {
        "labels": service_pb2.Labels,
        "layout": tensor_pb2.Layout,
    }
    for field in service_pb2.CorrectRequest.DESCRIPTOR.fields:
        if field.name in internal:
            continue
        paths = [field.name]
        if field.name in parts:
            paths = [f"{field.name}.{f.name}" for f in parts[field.name].DESCRIPTOR.fields]
        for path in paths:
            assert root(translation.argument(path, SENT)) in ARGUMENTS, path
    for role in tensor_pb2.TensorRole.values()[1:6]:
        name = tensor_pb2.TensorRole.Name(role).removeprefix("TENSOR_ROLE_")
        assert translation.argument(f"tensors[{name}]", SENT) in ARGUMENTS


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        (
            "No preset is called 'ListMethods'. Did you mean 'x'? ListMethods tells the names.",
            "No preset is called 'ListMethods'. Did you mean 'x'? "
            "client.list_methods() tells the names.",
        ),
        (
            "is NaN, where response_mask is 1; non_finite_policy DROP or NEUTRALIZE accepts such "
            "tokens",
            'is NaN, where response_mask is 1; non_finite="drop" or "neutralize" accepts such '
            "tokens",
        ),
        (
            "the surrogate's own ratio (CURRENT_OLD) and the importance weight (OLD_ROLLOUT) "
            "correct the same drift twice",
            'the surrogate\'s own ratio ("current_old") and the importance weight '
            '("old_rollout") correct the same drift twice',
        ),
        ("is required by policy_loss.denominator GLOBAL", 'denominator="global"'),
        ("WEIGHTS were asked for", "weights were asked for"),
        ("must be >= 0, and num_sequences * length at most 9", "shape[0] * shape[1] at most 9"),
        # Parts of words and of paths do not match.
        ("MEANS a.DROP x[SUM] NaN K3S", "MEANS a.DROP x[SUM] NaN K3S"),
    ],
)
def test_descriptions(text: str, translated: str) -> None:
    assert translation.description(text, "method").endswith(translated)


@pytest.mark.parametrize(
    "name",
    [
        "ListMethods",
        "DROP",
        "a' ListMethods 'b",
        "' DROP",
        "DROP '",
        "x'DROP' y",
        "method.dialect.",
    ],
)
def test_what_callers_wrote_is_quoted_as_they_wrote_it(name: str) -> None:
    text = f"No preset is called '{name}'. ListMethods tells the names."
    expected = f"No preset is called '{name}'. client.list_methods() tells the names."
    assert translation.description(text, "method.preset.name") == expected


def test_other_systems_words_stay() -> None:
    text = "VESPO loss requires 'token', MASK as in ListMethods"
    translated = "VESPO loss requires 'token', MASK as in client.list_methods()"
    assert translation.description(text, "method.dialect.block.loss_type") == translated
    warning = "Ignored the unknown field method.dialect.block.method.dialect.DROP."
    assert (
        translation.warning(warning)
        == "Ignored the unknown field method.block.method.dialect.DROP."
    )


@pytest.mark.parametrize("member", CHOICES, ids=lambda member: f"{type(member).__name__}.{member}")
def test_choices_are_written_as_they_are_passed(member: choices.Choice) -> None:
    assert translation.description(f"needs {member.name}", "method") == f'needs "{member.value}"'


def test_every_rpc_has_a_word() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["CorrectionService"]
    for method in service.methods:
        if method.name != "Correct":
            assert method.name not in translation.refusal(f"see {method.name}.")
