"""Requests and answers as the library's JSON, compared with protobuf's own reader and writer."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

import counterweight_rl as cw
from counterweight_rl import calls
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.arrays import framing
from counterweight_rl.local import json_form

X = np.full((2, 3), -1, np.float32)
BATCH = {"rollout_log_probs": X, "old_log_probs": X, "response_mask": X == -1}
WEIGHT = cw.ImportanceWeight(
    ratio_source=cw.RatioSource.OLD_ROLLOUT,
    level=cw.Level.TOKEN,
    bound=cw.Bound.TRUNCATE,
    upper=0.1,
    token_clamp=math.inf,
)
BLOCK = {"a": [1, 0.1, None, True, {}, [], "wörter \x00\u2028😀"], "b": {"c": -0.0}}
CALLS: list[dict[str, Any]] = [
    {"method": "token_tis", "run": "läuft \x00\U0010ffff", "policy_version": 2**63 - 1},
    {"method": cw.Preset("token_tis", upper=5e-324), "seed": 2**64 - 1, "request_id": '"\\'},
    {"method": cw.CorrectionConfig(importance_weight=WEIGHT), "global_counts": cw.GlobalCounts()},
    {
        "method": cw.Preset("token_tis", low=-math.inf, allow_unknown=True),
        "row_divisors": [math.nan, 0.1, -0.0],
    },
    {"method": cw.Dialect("verl", BLOCK), "group_ids": [-(2**63), 3], "metrics": False},
    {"method": "icepop", "version_spans": [(0, 0, 3, 7)], "outputs": ["weights", "loss"]},
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_request_is_the_servers(call: dict[str, Any]) -> None:
    correction = calls.correct(**BATCH, **call).correction
    assert correction is not None
    request = correction.request()
    read = json_format.Parse(json_form.dump(request), pb.CorrectRequest())
    # Maps have no order; a NaN is not equal to itself, but its text is.
    assert repr(read) == repr(framing.to_request(request))


def test_numbers_that_json_lacks() -> None:
    block = {"a": math.inf, "b": [-math.inf, {"c": math.nan}], "$numberDouble": 1.0}
    head: Any = {"method": {"dialect": {"block": block}}, "row_divisors": [math.inf, 2.0]}
    assert json.loads(json_form.dump(head)) == {
        "method": {
            "dialect": {
                "block": {
                    "a": {"$numberDouble": "Infinity"},
                    "b": [{"$numberDouble": "-Infinity"}, {"c": {"$numberDouble": "NaN"}}],
                    "$numberDouble": 1.0,
                }
            }
        },
        "row_divisors": ["Infinity", 2.0],
    }
    assert head["method"]["dialect"]["block"]["a"] == math.inf


def test_an_answers_zeros_keep_their_sign() -> None:
    read = json_form.load(b'{"metrics":{"a":-0,"b":0,"c":-1,"d":-0.5}}')
    assert [struct.pack("d", n) for n in read["metrics"].values()] == [
        struct.pack("d", n) for n in (-0.0, 0.0, -1.0, -0.5)
    ]


def test_violations() -> None:
    text = b'{"fieldViolations":[{"field":"seed","description":"is odd"},{"field":"run"}]}'
    assert json_form.violations_of(text) == [("seed", "is odd"), ("run", "")]
    assert json_form.violations_of(b"") == []
