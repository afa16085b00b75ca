"""Shadows: what methods would do to a batch, in this process, by a server and on the command line."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from command_line import counterweight

pytestmark = pytest.mark.usefixtures("local_library")

METHODS: list[cw.Method] = [
    "token_tis",
    cw.Preset("geo_rs_token_tis", keep_lower=0.98, keep_upper=1.02),
    cw.Dialect("verl", {"rollout_is": "sequence", "rollout_is_threshold": 3.0}, release="0.9.1"),
    cw.CorrectionConfig(),
]


def batch(rows: int = 32, length: int = 50) -> dict[str, Any]:
    random = np.random.default_rng(3)
    rollout = -random.exponential(size=(rows, length)).astype(np.float32)
    old = -np.abs(rollout + random.normal(0, 0.2, rollout.shape)).astype(np.float32)
    mask = np.arange(length) < random.integers(1, length + 1, (rows, 1))
    advantages = random.normal(size=rollout.shape).astype(np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "advantages": advantages,
        "response_mask": mask,
    }


def effect(arrays: dict[str, Any], result: Any) -> tuple[float, float, float]:
    """The numbers of a result of ``correct``, by float64."""
    mask = arrays["response_mask"]
    log_ratio = (arrays["old_log_probs"] - arrays["rollout_log_probs"]).astype(float)
    kept = result.keep_mask[mask].astype(float)
    weights = kept if result.weights is None else kept * result.weights[mask]
    scale = np.abs(arrays["advantages"].astype(float))[mask]
    exact, ours = scale * np.exp(log_ratio[mask]), scale * weights
    norms = np.sqrt((ours**2).sum()), np.sqrt((exact**2).sum())
    return (
        float(np.abs(exact - ours).sum() / exact.sum()),
        float(norms[0] / norms[1]),
        float((ours * exact).sum() / (norms[0] * norms[1])),
    )


def test_numbers_are_those_of_calls(client: cw.Client) -> None:
    arrays = batch()
    here = cw.diagnose(**arrays, shadows=METHODS).shadows
    assert client.diagnose(**arrays, shadows=METHODS).shadows == here
    assert [each.method for each in here] == ["token_tis", "geo_rs_token_tis", "verl", "config"]
    for method, found in zip(METHODS, here, strict=True):
        result = client.correct(method=method, **arrays)
        assert found.tokens == arrays["response_mask"].sum()
        expected = effect(arrays, result)
        assert (found.bias, found.norm_ratio, found.cosine) == pytest.approx(
            expected, rel=1e-5, abs=1e-7
        )
        kept = result.keep_mask.sum() / arrays["response_mask"].sum()
        assert found.kept_token_fraction == pytest.approx(kept)
        if not isinstance(method, cw.Dialect) and result.weights is not None:
            assert found.effective_sample_size == result.metrics["effective_sample_size"]
    assert here[3].effective_sample_size is None
    assert client.diagnose(**arrays).shadows == ()


def test_print_shows_a_table_and_what_it_does_not_say() -> None:
    text = str(cw.diagnose(**batch(), shadows=METHODS[:2]))
    assert "\ntoken_tis         1.000" in text
    assert text.endswith("no such number predicted which method learns best.")


def test_wrong_shadows_are_named(client: cw.Client) -> None:
    arrays = batch()
    with pytest.raises(TypeError, match="shadows must be a list of methods, not str"):
        client.diagnose(**arrays, shadows="token_tis")
    for where in (client, cw.Client("local:")):
        with pytest.raises(cw.InvalidRequestError, match=r"shadows\[0\].*token_tis"):
            where.diagnose(**arrays, shadows=["token_tiss"])
        with pytest.raises(cw.InvalidRequestError, match="at most 4"):
            where.diagnose(**arrays, shadows=["none"] * 5)


def test_the_command_line_describes_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "batch.npz"
    np.savez(path, **batch())
    shown = counterweight("doctor", str(path), "--shadows", "token_tis,geo_rs_token_tis")
    assert shown.returncode == 0, shown.stderr
    assert "geo_rs_token_tis" in shown.stdout
    made = counterweight("doctor", str(path), "--shadows", "token_tis:upper=3", "--json")
    assert [each["method"] for each in json.loads(made.stdout)["shadows"]] == ["token_tis"]
    wrong = counterweight("doctor", "--shadows", "token_tis")
    assert (wrong.returncode, "needs a FILE" in wrong.stderr) == (2, True)
