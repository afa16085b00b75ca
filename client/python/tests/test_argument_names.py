"""Errors name the argument as the caller spelled it, with protobuf and without."""

from __future__ import annotations

import enum
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import counterweight_rl as cw
from counterweight_rl import calls
from counterweight_rl.local import json_form

X = np.full((2, 3), -1, np.float32)
MASK = np.ones((2, 3), bool)
TEXTS = [5, 1.5, b"x", True, ["x"], object(), "\ud800"]
INTEGERS = [1.5, "5", b"5", True, np.bool_(True), np.float64(7), 2**64, -(2**64), 10**400, [1], {}]
LISTS: list[Any] = [5, "12", b"12", {1: 2}, {1, 2}, [1.5, 2], ["1", "2"], [True, False], [None, 1]]
LISTS += [[2**63, 0], [[1], [2]], np.ones(2), np.array(2), np.ma.masked_array([1, 2]), object()]
BOOLEANS = [0, 1, "true", b"", [], 1.5]
ARRAYS: list[Any] = [5, "x", [1.0], {}, X.astype(complex), X.astype(str), X.astype(object)]
ARRAYS += [X.astype("M8[s]"), np.ma.masked_array(X), np.zeros((2, 3), [("x", "f4")])]
REAL = ("rollout_log_probs", "old_log_probs", "current_log_probs", "ref_log_probs", "advantages")
CHOICES = [5, b"reject", "", None, "rejects"]
WRONG: dict[str, list[Any]] = {
    "run": TEXTS,
    "replica": TEXTS,
    "request_id": TEXTS,
    "seed": [*INTEGERS, -1],
    "policy_version": [*INTEGERS, 2**63],
    "padded_length": [*INTEGERS, 2**63],
    "sequence_lengths": LISTS,
    "group_ids": LISTS,
    "row_divisors": [
        5,
        "12",
        b"12",
        {1: 2},
        {1, 2},
        ["1", "2"],
        [True, 1],
        [None],
        [[1.0]],
        [10**400],
    ],
    "version_spans": [*LISTS, [(0, 0, 1)], [(0, 0, 1, "a")], [(0, 0, 1, 2**63)], [None]],
    "outputs": [5, "weights", b"weights", [5], ["x"], [], object()],
    "out": [[], (), 5, "x", {"x": X}, {"weights": np.ma.masked_array(X)}, {"weights": [1.0]}],
    "metrics": BOOLEANS,
    "non_finite": CHOICES,
    "global_counts": [5, {}, cw.GlobalCounts(num_tokens="5")],  # type: ignore[arg-type]
    "progress": [5, "x"],
    "response_mask": [None, *ARRAYS],
    "policy_versions": [*ARRAYS, X],
    **{name: [*ARRAYS, MASK] for name in REAL},
}
LOSS = {"surrogate": "reinforce", "aggregation": "token_mean", "denominator": "kept"}
RULE = {"ratio_source": "old_rollout", "estimator": "k2", "aggregation": "mean"}
WEIGHT = {"ratio_source": "old_rollout", "level": "token", "bound": "none"}
METHODS: list[tuple[str, Any]] = [
    ("method", 5),
    ("method", b"token_tis"),
    ("method", "\ud800"),
    ("method.name", cw.Preset(5)),  # type: ignore[arg-type]
    *(
        ("method.parameters[upper]", cw.Preset("token_tis", upper=value))
        for value in ("3", True, [3.0], None, 10**400, 1j)
    ),
    *(("method.system", cw.Dialect(value)) for value in (5, b"verl")),  # type: ignore[arg-type]
    *(
        ("method.release", cw.Dialect("verl", release=value))  # type: ignore[arg-type]
        for value in (5, 1.0)
    ),
    ("method.ignore_unknown_fields", cw.Dialect("verl", ignore_unknown_fields=1)),  # type: ignore[arg-type]
    *(
        (
            "method.policy_loss.clip_low",
            cw.CorrectionConfig(policy_loss=cw.PolicyLoss(**LOSS, clip_low=value)),
        )
        for value in ("0.2", True, [0.2], 10**400)
    ),
    *(
        (
            "method.importance_weight.after_rule",
            cw.CorrectionConfig(importance_weight=cw.ImportanceWeight(**WEIGHT, after_rule=value)),
        )
        for value in (1.0, "1", True, -1, 2**32)
    ),
    (
        "method.importance_weight.normalize",
        cw.CorrectionConfig(importance_weight=cw.ImportanceWeight(**WEIGHT, normalize=1)),
    ),
    ("method.rules", cw.CorrectionConfig(rules=5)),  # type: ignore[arg-type]
    ("method.rules[0].name", cw.CorrectionConfig(rules=[cw.RejectionRule(**RULE, name=5)])),
]


def raised(**changed: Any) -> str:
    """Returns what the arguments raise, and its kind."""
    arguments: dict[str, Any] = {
        "rollout_log_probs": X,
        "old_log_probs": X,
        "response_mask": MASK,
        "method": "token_tis",
        **changed,
    }
    if "sequence_lengths" in changed or "padded_length" in changed:
        for name in ("rollout_log_probs", "old_log_probs", "response_mask"):
            arguments[name] = arguments[name].reshape(-1)
        arguments.setdefault("sequence_lengths", [3, 3])
    try:
        calls.correct(**{"request_id": "id", **arguments})
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def report() -> list[tuple[str, str]]:
    """Returns each wrong value's argument and error."""
    found = [(name, raised(**{name: value})) for name, values in WRONG.items() for value in values]
    return found + [(path, raised(method=method)) for path, method in METHODS]


def test_each_wrong_value_is_refused_by_name() -> None:
    for name, error in report():
        assert name in error.replace("out['", "out"), (name, error)
        assert "Error: " in error, (name, error)


def test_errors_are_the_same_without_protobuf() -> None:
    """Runs this file, in a process that cannot import protobuf."""
    tests = pathlib.Path(__file__).parent
    path = os.pathsep.join([str(tests.parent), str(tests)])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PROTOBUF, __file__],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    assert done.stdout.splitlines() == [repr(each) for each in comparable(report())]


def comparable(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, error.partition(" object at 0x")[0]) for name, error in found]


WITHOUT_PROTOBUF = """
import runpy, sys
sys.modules["google.protobuf"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Level(str, enum.Enum):
    TOKEN = "token"


class Mode(enum.Enum):
    SEQUENCE = "sequence"
    STEPS = 3


def test_members_of_enums_are_sent_as_their_values() -> None:
    block = {
        "a": Level.TOKEN,
        "b": [Mode.SEQUENCE],
        "c": {"d": Mode.STEPS},
        "e": enum.IntEnum("E", "x")(1),
    }
    call = calls.correct(
        rollout_log_probs=X,
        old_log_probs=X,
        response_mask=MASK,
        method=cw.Dialect(Level.TOKEN, block, release=Level.TOKEN),
        run=Level.TOKEN,
        non_finite=enum.Enum("Policy", {"DROP": "drop"}, type=str).DROP,
    )
    assert call.correction is not None
    head: Any = call.correction.head
    dialect = head["method"]["dialect"]
    assert head["labels"]["run"] == dialect["system"] == dialect["release"] == "token"
    assert head["non_finite_policy"] == "NON_FINITE_POLICY_DROP"
    assert dialect["block"] == {"a": "token", "b": ["sequence"], "c": {"d": 3.0}, "e": 1.0}
    # No member of an enum of the caller's, which another writer of JSON would spell otherwise.
    assert b"Level" not in json_form.dump(head)


def nested(depth: int, kind: type = dict) -> Any:
    block: Any = 1
    for _ in range(depth):
        block = {"a": block} if kind is dict else [block]
    return {"a": block}


def cyclic() -> Any:
    block: dict[str, Any] = {"rollout_is": "token"}
    block["more"] = [block]
    return block


def bomb() -> Any:
    value: Any = ["x"] * 10
    for _ in range(9):
        value = [value] * 10
    return {"a": value}


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (nested(30), "nested at most 30 deep"),
        (nested(30, list), "nested at most 30 deep"),
        (nested(100_000, list), "nested at most 30 deep"),
        (cyclic(), "nested at most 30 deep"),
        (bomb(), "at most 10000 values"),
        ({str(i): i for i in range(10_001)}, "at most 10000 values"),
        ({"a": 10**5000}, "beyond the range of a float"),
        ({"a": ["\ud800"]}, "UTF-8"),
        ({"\ud800": 1}, "UTF-8"),
        ({"a": {1: 2}}, "keys must be strings"),
        ({"a": b"x"}, "cannot hold a bytes"),
        ({"a": {1, 2}}, "cannot hold a set"),
        ({"a": enum.Enum("Odd", {"X": object()}).X}, "cannot hold a object"),
    ],
)
def test_blocks_that_cannot_be_sent(block: Any, problem: str) -> None:
    error = raised(method=cw.Dialect("verl", block))
    assert "method.block" in error
    assert problem in error
    assert len(error) < 500


def test_the_deepest_block_reaches_a_server() -> None:
    """The receiver's limit is that of protobuf: 100 messages in each other."""
    from counterweight_rl.arrays import framing

    for block in (nested(29), nested(29, list)):
        call = calls.correct(
            rollout_log_probs=X,
            old_log_probs=X,
            response_mask=MASK,
            method=cw.Dialect("verl", block),
        )
        assert call.correction is not None
        sent = framing.to_request(call.correction.head)
        assert type(sent).FromString(sent.SerializeToString()) == sent


if __name__ == "__main__":
    for each in comparable(report()):
        print(repr(each))
