"""Losses and gradients that a trainer gets.

tests/golden has the other systems' own; test_golden_over_the_wire.py compares with them.
"""

from __future__ import annotations

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch

VERL = cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})


def ppo(denominator: cw.LossDenominator) -> cw.Preset:
    return cw.Preset(
        "token_tis",
        policy_loss=cw.PolicyLoss(
            surrogate=cw.Surrogate.PPO_CLIP,
            aggregation=cw.LossAggregation.TOKEN_MEAN,
            denominator=denominator,
            clip_low=0.2,
            clip_high=0.2,
        ),
    )


def test_the_example_of_the_readme(client: cw.Client) -> None:
    batch = padded_batch()
    result = client.correct(method=VERL, **batch)
    mask = batch["response_mask"] == 1
    assert result.weights is not None
    assert result.keep_mask is not None
    assert result.gradient is not None
    assert result.loss is not None
    assert {"actor/ppo_kl", "rollout_corr/kl"} <= result.metrics.keys()
    # verl's defaults: PPO with dual clip, mean over tokens. In float64, from its formula.
    old, rollout, current, advantages = (
        batch[name][mask].astype(np.float64)
        for name in ("old_log_probs", "rollout_log_probs", "current_log_probs", "advantages")
    )
    weights = np.minimum(np.exp(old - rollout), 2.0)
    ratio = np.exp(current - old)
    clipped = -advantages * np.clip(ratio, 0.8, 1.2)
    loss = np.maximum(-advantages * ratio, clipped)
    bound = (advantages < 0) & (loss > -advantages * 3.0)
    slope = np.where((loss > -advantages * ratio) | bound, 0.0, -advantages * ratio)
    loss = np.where(bound, -advantages * 3.0, loss)
    np.testing.assert_allclose(result.weights[mask], weights, rtol=1e-5)
    np.testing.assert_allclose(result.loss, (weights * loss).mean(), rtol=2e-5)
    expected = weights * slope / mask.sum()
    largest = np.abs(expected).max()
    np.testing.assert_allclose(result.gradient[mask], expected, rtol=2e-5, atol=1e-6 * largest)
    assert (result.gradient[~mask] == 0).all()


@pytest.mark.parametrize(
    "method", [VERL, ppo(cw.LossDenominator.ORIGINAL)], ids=["dialect", "preset"]
)
def test_packed_and_per_sequence_advantages_change_nothing(
    client: cw.Client, method: cw.Method
) -> None:
    batch = padded_batch()
    per_row = np.arange(-2, 4, dtype=np.float32)
    batch["advantages"] = np.repeat(per_row[:, None], batch["response_mask"].shape[1], axis=1)
    mask = batch["response_mask"] == 1
    expected = client.correct(method=method, **batch)
    assert expected.gradient is not None
    flat = packed(batch)
    for arguments in (
        {**batch, "advantages": per_row},
        {**batch, "advantages": per_row[:, None]},
        flat,
        {**flat, "advantages": per_row},
    ):
        result = client.correct(method=method, **arguments)
        assert result.loss == expected.loss
        gradient = result.gradient
        assert gradient is not None
        gradient = gradient[mask] if gradient.ndim == 2 else gradient
        assert gradient.tobytes() == expected.gradient[mask].tobytes()


@pytest.mark.parametrize(
    "method",
    [
        ppo(cw.LossDenominator.GLOBAL),
        ppo(cw.LossDenominator.ORIGINAL),
        "ppo_clip",
        "gspo",
        VERL,
        cw.Dialect("trl", {"loss_type": "dapo"}),
        cw.Dialect("openrlhf", {}),
    ],
    ids=str,
)
def test_ranks_add_up_to_the_whole_batch(client: cw.Client, method: cw.Method) -> None:
    batch = padded_batch()
    counts = cw.GlobalCounts(
        num_tokens=int(batch["response_mask"].sum()),
        num_sequences=int(batch["response_mask"].any(1).sum()),
    )
    whole = client.correct(method=method, global_counts=counts, **batch)
    parts = [
        client.correct(
            method=method,
            global_counts=counts,
            **{name: tensor[rows] for name, tensor in batch.items()},
        )
        for rows in (slice(0, 4), slice(4, 6))
    ]
    gradients = np.concatenate([part.gradient for part in parts])
    assert whole.gradient is not None
    assert whole.loss is not None
    assert gradients.tobytes() == whole.gradient.tobytes()
    losses = [part.loss for part in parts if part.loss is not None]
    np.testing.assert_allclose(sum(losses), whole.loss, rtol=1e-12)


def test_parts_of_a_rollout_share_its_divisor(client: cw.Client) -> None:
    batch = padded_batch()
    tokens = np.maximum(batch["response_mask"].sum(1), 1)
    own = client.correct(method="gspo", row_divisors=tokens, **batch)
    half = client.correct(method="gspo", row_divisors=2.0 * tokens, **batch)
    assert own.loss == client.correct(method="gspo", **batch).loss
    assert own.loss is not None
    assert half.loss == own.loss / 2
    with pytest.raises(cw.InvalidRequestError, match="row_divisors: is read by losses that"):
        client.correct(method="ppo_clip", row_divisors=tokens, **batch)
    with pytest.raises(TypeError, match=r"row_divisors\[0\] must be a number, not str"):
        client.correct(method="gspo", row_divisors=["1"] * len(tokens), **batch)


def test_the_loss_alone_is_the_same_loss(client: cw.Client) -> None:
    batch = padded_batch()
    everything = client.correct(method=VERL, **batch)
    alone = client.correct(method=VERL, outputs=("loss",), **batch)
    assert alone.loss == everything.loss
    np.testing.assert_equal(alone.metrics, everything.metrics)
    assert (alone.weights, alone.keep_mask, alone.gradient) == (None, None, None)


def test_the_seed_chooses_the_tokens(client: cw.Client) -> None:
    batch = padded_batch(8, 64)
    policy_loss = {
        "loss_mode": "clip_cov",
        "clip_cov_ratio": 0.1,
        "clip_cov_lb": -100.0,
        "clip_cov_ub": 100.0,
    }
    method = cw.Dialect("verl", {"policy_loss": policy_loss})
    gradients = [client.correct(method=method, seed=s, **batch).gradient for s in (7, 7, 8)]
    first, again, other = gradients
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_a_config_without_a_loss_has_none(client: cw.Client) -> None:
    batch = padded_batch()
    result = client.correct(method="token_tis", **batch)
    assert result.loss is None
    assert result.gradient is None
    with pytest.raises(cw.InvalidRequestError):
        client.correct(method="token_tis", outputs=("gradient",), **batch)
