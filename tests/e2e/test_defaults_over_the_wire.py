"""A field that a block leaves out has the default of the release that the block is of.

tests/golden/defaults.json has the default configuration objects of every published release.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from goldens import FOLDER

LOSSES = {
    "openrlhf": ("ppo", "gspo"),
    "skyrl": (
        *("regular", "dual_clip", "gspo", "sapo", "cispo", "rollout_is", "dppo", "clip_cov"),
        *("kl_cov", "cross_entropy", "importance_sampling"),
    ),
    "trl": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo"),
    "verl": (
        *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov"),
        *("geo_mean", "cispo"),
    ),
}
DEFAULTS: list[dict[str, Any]] = json.loads((FOLDER / "defaults.json").read_text())
RELEASES = {
    (row["system"], release): row["block"] for row in DEFAULTS for release in row["releases"]
}


def verl(**actor: Any) -> dict[str, Any]:
    return {"actor_rollout_ref": {"actor": actor}}


# Fields beside the defaults, by system; each set also with each loss.
SAID: dict[str, list[dict[str, Any]]] = {
    "openrlhf": [{}, {"dual_clip": 2.0}, {"token_level_loss": False}],
    "skyrl": [
        {"use_kl_loss": False},  # absent it is false, because a request may lack the reference
        {"use_kl_loss": True},
        {"use_kl_loss": False, "off_policy_correction": {"tis_ratio_type": "token"}},
        {"use_kl_loss": False, "off_policy_correction": {"sequence_mask_metric": "geometric"}},
    ],
    "trl": [{"use_vllm": False}, {"use_vllm": True}, {"use_vllm": False, "beta": 0.04}],
    "verl": [
        {},
        verl(use_kl_loss=True),
        {"algorithm": {"rollout_correction": {"rollout_is": "token"}}},
    ],
}
# The same since OpenRLHF 0.11.2, which has other names.
BY_LEVEL = [{"is_correction_level": "token"}, {"is_correction_level": "seq"}]


def choosing(system: str, loss: str) -> dict[str, Any]:
    if system == "verl":
        return verl(policy_loss={"loss_mode": loss})
    return {"loss_type" if system == "trl" else "policy_loss_type": loss}


def merged(block: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    both = dict(block)
    for name, value in said.items():
        inner = isinstance(value, dict) and isinstance(block.get(name), dict)
        both[name] = merged(block[name], value) if inner else value
    return both


def answer(client: cw.Client, system: str, release: str, block: dict[str, Any]) -> Any:
    random = np.random.default_rng(61)
    old = -0.05 - 2 * random.random((5, 7), dtype=np.float32)
    near = [old + scale * random.normal(size=old.shape).astype(np.float32) for scale in (0.2, 0.3)]
    mask = (np.arange(7) < np.array([[7], [5], [6], [3], [7]])).astype(np.uint8)
    result = client.correct(
        old_log_probs=old,
        current_log_probs=np.minimum(near[0], -0.01),
        rollout_log_probs=np.minimum(near[1], -0.01),
        ref_log_probs=old - 0.1 * random.random(old.shape, dtype=np.float32),
        advantages=random.normal(size=5).astype(np.float32),
        response_mask=mask,
        method=cw.Dialect(system, block, release=release),
        outputs=["gradient", "keep_mask"],
        seed=1,
    )
    return result.loss, result.gradient.tobytes(), result.keep_mask.tobytes(), result.metrics


@pytest.mark.parametrize(("system", "release"), RELEASES)
def test_an_absent_field_has_the_releases_default(
    client: cw.Client, system: str, release: str
) -> None:
    more = BY_LEVEL if "is_correction_level" in RELEASES[system, release] else []
    for said in [*SAID[system], *more]:
        for loss in LOSSES[system]:
            block = merged(choosing(system, loss), said)
            try:
                short = answer(client, system, release, block)
            except cw.InvalidRequestError as refusal:
                fields = {violation.field for violation in refusal.violations}
                with pytest.raises(cw.InvalidRequestError) as whole:
                    answer(client, system, release, merged(RELEASES[system, release], block))
                assert {violation.field for violation in whole.value.violations} == fields
                continue
            # assert_equal takes NaN to equal NaN.
            whole_answer = answer(client, system, release, merged(RELEASES[system, release], block))
            np.testing.assert_equal(short, whole_answer, err_msg=f"{said} {loss}")


def test_every_release_that_peers_compares_has_its_defaults() -> None:
    listed = pathlib.Path(__file__).parents[1] / "peers/releases.in"
    releases = [line.split("==") for line in listed.read_text().splitlines() if "==" in line]
    assert [(s, r) for s, r in releases if s in LOSSES and (s, r) not in RELEASES] == []


def test_every_release_with_other_answers_has_its_defaults(client: cw.Client) -> None:
    for row in client.server_info().dialect_releases:
        if row.system not in LOSSES:
            continue  # it runs from git
        for release in row.releases:
            assert (row.system, release.version) in RELEASES
