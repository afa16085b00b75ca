"""The answers of the dialects' systems; tests/golden/README.md has the rules."""

from __future__ import annotations

import re

import counterweight_rl as cw
import numpy as np
import pytest
from goldens import (
    BLAMED_FIELDS,
    COUNTS,
    FOLDER,
    GOLDENS,
    REFUSED,
    SAMPLE,
    SYSTEMS,
    array,
    correct,
)
from server_process import REPOSITORY

README = REPOSITORY / "README.md"
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


def test_the_readme_counts_what_is_reproduced() -> None:
    """A row may name several systems; errors that are refused as there count."""
    titles = {
        "AReaL": "areal",
        "NeMo-RL": "nemo_rl",
        "ms-swift": "ms_swift",
        "prime-rl": "prime_rl",
    }
    rows = re.findall(r"^\| (.+?) \|.+\| (\d+) of (\d+) \|$", README.read_text(), re.MULTILINE)
    found = {}
    for title, reproduced, whole in rows:
        names = [word for word in re.findall(r"[\w-]+", title) if word[0].isalpha()]
        systems = [titles.get(name, name.lower()) for name in names]
        found[tuple(s for s in systems if s in SYSTEMS)] = (int(reproduced), int(whole))
    expected = {}
    for systems in found:
        whole = sum(SYSTEMS[system] for system in systems)
        refused = sum(name.split("/")[0] in systems for name in REFUSED)
        expected[systems] = (whole - refused, whole)
    assert found == expected
    assert {system for systems in found for system in systems} == {*SYSTEMS}


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
