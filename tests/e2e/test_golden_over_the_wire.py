"""The answers of the dialects' systems; tests/golden/README.md has the rules."""

from __future__ import annotations

import re

import counterweight_rl as cw
import numpy as np
import pytest
from goldens import BLAMED_FIELDS, COUNTS, FOLDER, GOLDENS, MISSING, SAMPLE, array, correct

ANSWERED = [n for n, g in GOLDENS.items() if "error" not in g["expect"]]


def check_tensor(
    actual: np.ndarray | None, expected: np.ndarray, mask: np.ndarray, rtol: float, atol: float
) -> None:
    assert actual is not None
    np.testing.assert_allclose(actual[mask], expected[mask], rtol=rtol, atol=atol)
    assert (actual[~mask] == 0).all()


@pytest.mark.parametrize("system", COUNTS)
def test_goldens_are_there(system: str) -> None:
    assert len(list((FOLDER / system).glob("*.json"))) == COUNTS[system]


def test_every_error_blames_a_field() -> None:
    assert set(BLAMED_FIELDS) == {n for n, g in GOLDENS.items() if "error" in g["expect"]}


@pytest.mark.parametrize("name", ANSWERED[::SAMPLE])
def test_answer(client: cw.Client, name: str) -> None:
    golden = GOLDENS[name]
    expect = golden["expect"]
    result = correct(client, golden)
    mask = array(golden["inputs"]["response_mask"]) == 1
    if "mask" in expect:
        np.testing.assert_array_equal(result.keep_mask, array(expect["mask"]))
    if "weights" in expect:
        check_tensor(result.weights, array(expect["weights"]), mask, rtol=1e-5, atol=1e-8)
    if "loss" in expect:
        assert result.loss is not None
        np.testing.assert_allclose(result.loss, float(expect["loss"]), rtol=2e-5, atol=1e-7)
    if "grad" in expect:
        expected = array(expect["grad"])
        largest = np.abs(expected).max(initial=0.0)
        check_tensor(result.gradient, expected, mask, rtol=2e-5, atol=1e-6 * largest)
    for metric, value in expect.get("metrics", {}).items():
        if metric not in result.metrics:
            assert metric in MISSING.get(golden["dialect"], {})
            continue
        np.testing.assert_allclose(
            result.metrics[metric], float(value), rtol=2e-5, atol=2e-6, err_msg=metric
        )


@pytest.mark.parametrize("name", [*BLAMED_FIELDS][::SAMPLE])
def test_error(client: cw.Client, name: str) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, GOLDENS[name])
    violations = caught.value.violations
    assert all(violation.description for violation in violations)
    # Such as method.block.rollout_is and old_log_probs.
    named = {part for v in violations for part in re.findall(r"\w+", v.field.lower())}
    assert named & set(BLAMED_FIELDS[name]), f"{BLAMED_FIELDS[name]} not in {violations}"
