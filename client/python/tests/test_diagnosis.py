"""Diagnoses: their messages, and what they look like."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import counterweight_rl as cw
from counterweight_rl import diagnose_call, diagnosis
from counterweight_rl.contract.tensors import TensorRole

SHIFTED: dict[str, Any] = {
    "name": "shifted",
    "severity": "SEVERITY_ERROR",
    "confidence": 0.993,
    "stream": "TENSOR_ROLE_OLD_LOG_PROBS",
    "observed": 1.09,
    "repaired": 0.008,
    "sequence": "17",
    "position": "0",
    "sentence": "old_log_probs lies one token late: 1.09 nats a token as sent, 0.008 with the "
    "shift undone; first in row 17 at position 0. Way out: labels are shifted twice.",
}
ROUNDED: dict[str, Any] = {
    "name": "bf16_rounded",
    "severity": "SEVERITY_NOTE",
    "confidence": 1,
    "stream": "TENSOR_ROLE_UNSPECIFIED",
    "evidence": {"share": 1},
    "sentence": "rounded.",
}
SENTENCE = (
    "k3 0.032 = 65 % engine and staleness, 11 % update, 24 % both together. 72 % of it on tokens "
    "below -1 nat (19 % of tokens); 1 of 3 sequences carry 35 %."
)
ATTRIBUTION: dict[str, Any] = {
    "numerator": "TENSOR_ROLE_CURRENT_LOG_PROBS",
    "denominator": "TENSOR_ROLE_ROLLOUT_LOG_PROBS",
    "tokens": "100",
    "sequences": "3",
    "causes": {
        "k3": 3.2,
        "kl": -0.5,
        "k3EngineStaleness": 2.08,
        "k3Update": 0,
        "freshTokens": "7",
        "freshK3": 0.5,
    },
    "byMagnitude": [
        {"tokens": "81", "logRatio": 0.25, "k3": 0.896},
        {"first": 1, "tokens": "19", "k3": 2.304},
    ],
    "byPosition": [{"first": 4, "tokens": "100", "k3": 3.2, "k3Expected": 1.6}],
    "heaviest": [{"sequence": "2", "tokens": "40", "k3": 1.12}],
    "sentence": SENTENCE,
}


def answer(*findings: dict[str, Any], **changes: Any) -> diagnosis.Diagnosis:
    sizes = {"tokens": "1200", "examinedTokens": "1200", "examinedSequences": "24"}
    return diagnosis.read({"requestId": "r", "findings": list(findings), **sizes, **changes})


def test_findings_have_the_messages_numbers() -> None:
    shifted, rounded = answer(SHIFTED, ROUNDED).findings
    assert (shifted.name, shifted.severity, shifted.stream) == ("shifted", "error", "old_log_probs")
    assert (shifted.observed, shifted.repaired) == (1.09, 0.008)
    assert (shifted.sequence, shifted.position) == (17, 0)
    assert (rounded.severity, rounded.stream) == ("note", "")
    assert (rounded.observed, rounded.repaired, rounded.sequence) == (None, None, None)
    assert rounded.evidence == {"share": 1.0}


def test_only_notes_are_ok() -> None:
    assert answer().ok
    assert answer(ROUNDED).ok
    assert not answer(ROUNDED, SHIFTED).ok
    assert answer(SHIFTED).has("shifted")
    assert not answer(SHIFTED).has("log2")


def test_a_diagnosis_reads_well_at_80_columns() -> None:
    assert str(answer()) == "no findings in 1,200 tokens of 24 sequences"
    assert str(answer(SHIFTED)).splitlines() == [
        "1 finding in 1,200 tokens of 24 sequences",
        "error   shifted (confidence 0.99)",
        "        old_log_probs lies one token late: 1.09 nats a token as sent, 0.008 with",
        "        the shift undone; first in row 17 at position 0. Way out: labels are",
        "        shifted twice.",
    ]
    sampled = str(answer(tokens="4000000", examinedTokens="65000", examinedSequences="60"))
    assert sampled.splitlines() == [
        "no findings in 4,000,000 tokens; 65,000 of them, in 60 sequences, were examined",
        "one by one",
    ]
    assert repr(answer(SHIFTED, ROUNDED)) == "<Diagnosis: shifted, bf16_rounded; 1200 tokens>"
    assert repr(answer()) == "<Diagnosis: nothing found; 1200 tokens>"


def test_an_attribution_has_the_messages_numbers() -> None:
    assert answer().attribution is None
    read = answer(attribution=ATTRIBUTION).attribution
    assert read is not None
    assert (read.numerator, read.denominator) == ("current_log_probs", "rollout_log_probs")
    assert (read.tokens, read.sequences) == (100, 3)
    assert read.causes == cw.Causes(3.2, -0.5, 2.08, 0.0, None, None, None, None, 7, 0.5)
    assert read.by_magnitude == (
        cw.Bucket(0.0, 81, 0.25, 0.896, None),
        cw.Bucket(1.0, 19, 0.0, 2.304, None),
    )
    assert read.by_position == (cw.Bucket(4.0, 100, 0.0, 3.2, 1.6),)
    assert (read.by_length, read.by_log_ratio) == ((), ())
    assert read.heaviest == (cw.HeavySequence(2, 40, 1.12),)


def test_an_attribution_explains_itself_at_80_columns() -> None:
    diagnosis = answer(attribution=ATTRIBUTION)
    sentence = [
        "k3 0.032 = 65 % engine and staleness, 11 % update, 24 % both together. 72 % of",
        "it on tokens below -1 nat (19 % of tokens); 1 of 3 sequences carry 35 %.",
    ]
    assert str(diagnosis).splitlines() == [
        "no findings in 1,200 tokens of 24 sequences",
        *sentence,
    ]
    read = diagnosis.attribution
    assert repr(read) == f"<Attribution: {SENTENCE}>"
    assert read is not None
    assert read.explain().splitlines() == [
        *sentence,
        "tokens by        from   tokens       k3  observed/expected",
        "-log prob           0     81 %     28 %",
        "                    1     19 %     72 %",
        "position            4    100 %    100 %  2",
        "heaviest sequences: 2 (35 %)",
    ]


def test_a_batch_without_drift_explains_itself() -> None:
    still = {**ATTRIBUTION, "causes": {}, "byPosition": [], "heaviest": [{"tokens": "9"}]}
    still["byMagnitude"] = [{"tokens": "100"}]
    read = answer(attribution=still).attribution
    assert read is not None
    assert read.table().splitlines() == [
        "tokens by        from   tokens       k3  observed/expected",
        "-log prob           0    100 %      0 %",
    ]


def batch(**changes: Any) -> dict[str, Any]:
    ones = np.ones((2, 3), np.float32)
    return {
        "response_mask": ones,
        "rollout_log_probs": -ones,
        "old_log_probs": -ones,
    } | changes


def message(**changes: Any) -> dict[str, Any]:
    return diagnose_call.diagnose(**batch(**changes)).message


def test_staleness_becomes_versions() -> None:
    whole = message(staleness=2)
    assert whole["labels"] == {"policy_version": 2}
    spans = [(each["sequence"], each["start"], each["end"]) for each in whole["version_spans"]]
    assert spans == [(0, 0, 3), (1, 0, 3)]
    assert {each["policy_version"] for each in whole["version_spans"]} == {0}
    call = diagnose_call.diagnose(**batch(staleness=np.array([[0, 1, 2], [3, 3, 3]])))
    assert call.message["labels"] == {"policy_version": 3}
    assert call.examined is not None
    (versions,) = [t for t in call.examined.tensors if t.role == TensorRole.POLICY_VERSIONS]
    assert np.frombuffer(versions.data, np.int32).tolist() == [3, 2, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"staleness": -1}, ValueError, "staleness must be >= 0; got -1"),
        ({"staleness": np.full((2, 3), -1)}, ValueError, "staleness must be >= 0; got -1"),
        ({"staleness": 1, "policy_version": 3}, ValueError, "leave policy_version and them out"),
        ({"old_log_probs": np.ones((2, 4), np.float32)}, cw.InvalidRequestError, "old_log_probs"),
        ({"group_ids": ["a", "b"]}, TypeError, "group_ids"),
    ],
)
def test_wrong_arguments_are_named(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        diagnose_call.diagnose(**batch(**changes))


def test_unknown_arguments_are_refused_like_pythons() -> None:
    with (
        cw.Client("localhost:1", timeout=1) as client,
        pytest.raises(TypeError, match=r"diagnose\(\) got an unexpected keyword argument 'old'"),
    ):
        client.diagnose(old=1, **batch())  # type: ignore[call-arg]


def test_help_shows_the_arguments() -> None:
    shown = [*inspect.signature(cw.diagnose).parameters]
    assert shown == [*diagnose_call.ARGUMENTS]
    assert shown == [*inspect.signature(cw.Client.diagnose).parameters][1:]
