"""verl's own answers, over gRPC; tests/golden/README.md has the rules."""

from __future__ import annotations

import json
import re
from typing import Any

import counterweight as cw
import numpy as np
import pytest
from server_process import REPOSITORY

FOLDER = REPOSITORY / "tests/golden/verl"


def load() -> dict[str, dict[str, Any]]:
    """The goldens of what the server honours: corrections without a loss."""
    files = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    return {
        name: golden
        for name, golden in sorted(files.items())
        if not {"policy_loss", "bypass_mode"} & golden["params"].keys()
    }


GOLDENS = load()


def array(rows: list[list[Any]]) -> np.ndarray:
    # float() reads "NaN", "Infinity" and "-Infinity" too.
    shape = (len(rows), len(rows[0]) if rows else 0)
    return np.array([float(x) for row in rows for x in row]).reshape(shape)


def correct(client: cw.Client, golden: dict[str, Any]) -> cw.Result[Any]:
    inputs = {name: array(rows).astype(np.float32) for name, rows in golden["inputs"].items()}
    inputs["response_mask"] = inputs["response_mask"].astype(np.uint8)
    return client.correct(method=cw.Dialect("verl", golden["params"]), **inputs)


def field_of(golden: dict[str, Any]) -> str:
    """The field that the original's error is about."""
    message = golden["expect"]["error"]["message"]
    unknown = re.search(r"unexpected keyword argument '(\w+)'", message)
    missing = re.search(r'key "(\w+)" not found', message)
    if unknown or missing:
        return (unknown or missing).group(1)  # type: ignore[union-attr]
    if "division by zero" in message:
        # verl divides 1 by a rejection threshold of 0, and by weights that are
        # all 0.
        zero = golden["params"].get("rollout_rs_threshold") == "0"
        return "rollout_rs_threshold" if zero else "rollout_is_threshold"
    for pattern, field in [
        (r"rollout_is_threshold", "rollout_is_threshold"),
        (r"rollout_rs_threshold|[Tt]hreshold|could not convert", "rollout_rs_threshold"),
        (r"rollout_is\b", "rollout_is"),
        (r"rollout_rs\b", "rollout_rs"),
        (r"response_mask", "response_mask"),
    ]:
        if re.search(pattern, message):
            return field
    raise AssertionError(f"no field in: {message}")


def test_goldens_are_there() -> None:
    assert len(GOLDENS) >= 164


@pytest.mark.parametrize("name", [n for n, g in GOLDENS.items() if "error" not in g["expect"]])
def test_answer(client: cw.Client, name: str) -> None:
    golden = GOLDENS[name]
    expect = golden["expect"]
    result = correct(client, golden)
    mask = array(golden["inputs"]["response_mask"]) == 1
    if "mask" in expect:
        np.testing.assert_array_equal(result.keep_mask, array(expect["mask"]))
    if "weights" in expect:
        expected = array(expect["weights"])
        np.testing.assert_allclose(result.weights[mask], expected[mask], rtol=1e-5, atol=1e-8)
        assert (result.weights[~mask] == 0).all()
    for metric, value in expect.get("metrics", {}).items():
        assert metric in result.metrics
        np.testing.assert_allclose(
            result.metrics[metric], float(value), rtol=2e-5, atol=2e-6, err_msg=metric
        )


@pytest.mark.parametrize("name", [n for n, g in GOLDENS.items() if "error" in g["expect"]])
def test_error(client: cw.Client, name: str) -> None:
    golden = GOLDENS[name]
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, golden)
    field = field_of(golden)
    assert any(
        re.search(rf"\b{field}\b", f"{v.field} {v.description}") for v in caught.value.violations
    ), f"{field} is not in {caught.value.violations}"
