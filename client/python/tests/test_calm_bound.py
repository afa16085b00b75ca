"""The texts of bounds of calm steps, and servers that do not know them."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import FakeServer
from sample import BATCH, answer

import counterweight_rl as cw
from counterweight_rl import messages
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2

WEIGHT = {
    "ratio_source": cw.RatioSource.OLD_ROLLOUT,
    "level": cw.Level.TOKEN,
    "bound": cw.Bound.MASK,
}


def test_texts_become_quantiles_and_numbers() -> None:
    assert messages.method_to_message(cw.Preset("icepop", upper="calm:0.999:5", lower=0.5)) == {
        "preset": {
            "name": "icepop",
            "parameters": {"upper": 5.0, "lower": 0.5},
            "calm_quantiles": {"upper": 0.999},
        }
    }
    assert messages.method_to_message(cw.Preset("token_tis", upper="calm:0.9")) == {
        "preset": {"name": "token_tis", "parameters": {}, "calm_quantiles": {"upper": 0.9}}
    }
    config = cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(**WEIGHT, upper="calm:0.99:2")  # type: ignore[arg-type]
    )
    weight = messages.method_to_message(config)["config"]["importance_weight"]
    assert (weight["upper"], weight["upper_calm_quantile"]) == (2.0, 0.99)


@pytest.mark.parametrize("text", ["calm:", "calm:x", "calm:0.9:x", "calm:0.9:2:3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"method.parameters\[upper\] must be a number, \"calm"):
        messages.method_to_message(cw.Preset("token_tis", upper=text))
    with pytest.raises(TypeError):
        messages.method_to_message(cw.Preset("token_tis", upper="2"))


def test_an_older_server_is_an_error(server: FakeServer, client: cw.Client) -> None:
    batch = {**BATCH, "method": cw.Preset("token_tis", upper="calm:0.9:2"), "run": "r", "step": 0}
    server.handler = answer
    with pytest.raises(cw.CounterweightError, match="too old for bounds of calm steps"):
        client.correct(**batch)

    def newer(request: service_pb2.CorrectRequest, context: Any) -> service_pb2.CorrectResponse:
        response = answer(request, context)
        response.resolved_bounds.add(
            field="method.preset.calm_quantiles[upper]", value=2.5, is_calm=True, calm_steps=8
        )
        return response

    server.handler = newer
    assert client.correct(**batch).resolved_bounds == (
        cw.ResolvedBound("method.parameters[upper]", 2.5, True, 8, 0),
    )
