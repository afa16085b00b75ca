"""AReaL's PPO loss, called and reported as its trainer does, against AReaL's answers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, goldens, read
from goldens import GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import areal  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
CLIPS = ("eps_clip", "eps_clip_higher", "c_clip", "importance_sampling_level")


def is_ppo(golden: dict[str, Any]) -> bool:
    others = ("use_sapo_loss", "use_cispo_loss", "m2_threshold")
    params = golden["params"]
    return (
        answers(golden)
        and "loss" in golden["expect"]
        and not any(params.get(name) for name in others)
        and params.get("prox_logp_method", "recompute") in ("recompute", "reuse_train_logp")
    )


def policies(params: dict[str, Any], inputs: Any) -> tuple[Any, Any]:
    """Returns the log-probs of the proximal and the sampling policy, as the trainer chooses."""
    if not params.get("use_decoupled_loss"):
        of_both = inputs.old if params.get("recompute_logprob") else inputs.rollout
        return of_both, of_both
    if params.get("prox_logp_method") == "reuse_train_logp":
        return inputs.current.detach(), inputs.rollout
    return inputs.old, inputs.rollout


def reported(inputs: Any, stat: dict[str, Any]) -> dict[str, float]:
    """Returns the trainer's metrics of the statistics, by the masks that it has for them."""
    mask = inputs.mask.bool()
    of_mask = {
        "importance_weight": stat["importance_weight"],
        "approx_kl": stat["approx_kl"],
        "actor_loss": stat["loss"],
        "clip_ratio": stat["clip_mask"],
        "dual_clip_ratio": stat["dual_clip_mask"],
    }
    metrics = {
        "clipped_tokens": stat["clip_mask"].sum(),
        "dual_clipped_tokens": stat["dual_clip_mask"].sum(),
        "n_total_tokens": stat["n_total_tokens"],
        "n_valid_tokens_in_loss": stat["n_valid_tokens"],
        "n_masked_tokens": stat["n_masked_tokens"],
        "masked_token_ratio": stat["masked_token_ratio"],
    }
    groups = [(of_mask, mask)]
    if "behave_mask" in stat:
        used = stat["behave_mask"]
        of_used = {name: stat[name] for name in ("behave_imp_weight", "behave_approx_kl")}
        groups += [(of_used, used), ({"behave_filtered_ratio": mask & ~used}, mask)]
        metrics["unclipped_behave_tokens"] = used.sum()
        metrics["rs_filtered_fraction"] = stat["filtered_fraction"]
    for group, where in groups:
        for name, values in group.items():
            chosen = values.double()[where]
            if chosen.numel():
                averages = {"avg": chosen.mean(), "min": chosen.min(), "max": chosen.max()}
                metrics.update({f"{name}/{kind}": one for kind, one in averages.items()})
    return {name: float(one) for name, one in metrics.items()}


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", goldens("areal", is_ppo))
def test_areal_loss(name: str, is_packed: bool) -> None:
    golden = GOLDENS[name]
    params, expect, inputs = golden["params"], golden["expect"], read(golden)
    proximal, rollout = policies(params, inputs)
    rows, width = inputs.mask.shape
    tensors = [inputs.current, proximal, rollout, inputs.advantages, inputs.mask.bool()]
    starts = torch.arange(rows + 1) * width if is_packed else None
    if is_packed:
        tensors = [one.reshape(-1) for one in tensors]
    current, proximal, rollout, advantages, mask = tensors
    loss, stat = areal.ppo_actor_loss_fn(
        current,
        proximal,
        rollout,
        advantages,
        loss_mask=mask,
        rejection_sampling=params.get("rejection_sampling"),
        cu_seqlens=starts,
        **{"eps_clip": 0.2, **{name: params[name] for name in CLIPS if name in params}},
    )
    check_loss(loss, inputs, expect)
    stat = {
        name: one.reshape(rows, width) if isinstance(one, torch.Tensor) else one
        for name, one in stat.items()
    }
    metrics = reported(inputs, stat)
    compared = expect["metrics"].keys() & metrics.keys()
    assert {name for name in expect["metrics"] if name.partition("/")[0] in EXPECTED} == compared
    for metric in compared:
        expected = float(expect["metrics"][metric])
        assert metrics[metric] == pytest.approx(expected, rel=2e-5, abs=2e-6), metric


EXPECTED = {
    *("importance_weight", "approx_kl", "actor_loss", "clip_ratio", "dual_clip_ratio"),
    *("clipped_tokens", "dual_clipped_tokens", "n_total_tokens", "n_valid_tokens_in_loss"),
    *("n_masked_tokens", "masked_token_ratio", "behave_imp_weight", "behave_approx_kl"),
    *("behave_filtered_ratio", "unclipped_behave_tokens", "rs_filtered_fraction"),
}


def call(**changes: Any) -> tuple[Any, dict[str, Any]]:
    given = {
        **dict.fromkeys(("logprobs", "proximal_logprobs", "old_logprobs"), torch.full((4,), -1.0)),
        **{"advantages": torch.ones(4), "eps_clip": 0.2, "loss_mask": torch.ones(4).bool()},
        **changes,
    }
    return areal.ppo_actor_loss_fn(**given)


def test_packed_tokens_need_no_starts_and_sequences_do() -> None:
    loss, _ = call()
    assert loss.item() == pytest.approx(-1.0)
    for changes in (
        {"importance_sampling_level": "sequence"},
        {"rejection_sampling": {"level": "sequence"}},
    ):
        with pytest.raises(ValueError, match=r"^cu_seqlens is required"):
            call(**changes)


def test_settings_are_refused_by_name() -> None:
    wrong: dict[str, Any] = {
        **{"c_clip": 1.0, "eps_clip": -0.1, "importance_sampling_level": "row"},
        "rejection_sampling": {"metric": "binary_kl"},
    }
    for name, value in wrong.items():
        with pytest.raises(cw.InvalidRequestError) as caught:
            call(**{name: value})
        assert any(name in v.field for v in caught.value.violations), name
    with pytest.raises(cw.InvalidRequestError, match="advantages"):
        call(
            importance_sampling_level="sequence",
            advantages=torch.tensor([1.0, 2, 1, 1]),
            cu_seqlens=torch.tensor([0, 4]),
        )


def test_masked_positions_are_not_read() -> None:
    mask = torch.tensor([True, False, True, False])
    hole = torch.where(mask, -1.0, torch.nan)
    logprobs = hole.clone().requires_grad_()
    loss, stat = call(
        logprobs=logprobs, old_logprobs=hole, loss_mask=mask, rejection_sampling={"upper": 5.0}
    )
    loss.backward()
    assert loss.item() == pytest.approx(-1.0)
    torch.testing.assert_close(logprobs.grad, torch.tensor([-0.5, 0, -0.5, 0]))
    for name in ("loss", "importance_weight", "approx_kl", "behave_imp_weight", "behave_approx_kl"):
        assert torch.equal(stat[name][~mask], torch.zeros(2)), name
    assert not any(stat[name].requires_grad for name in ("loss", "importance_weight", "approx_kl"))


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
def test_a_rows_ratio_is_of_the_tokens_that_are_kept(is_packed: bool) -> None:
    proximal = torch.full((4,), -1.0)
    logprobs = proximal + torch.tensor([0.1, 0.3, -0.2, 0.9])
    rollout = proximal - torch.tensor([0.0, 0.2, 0.0, 2.0])  # beyond the bound: the last
    advantages = torch.full((4,), 2.0)
    tensors = [logprobs, proximal, rollout, advantages]
    starts = torch.tensor([0, 4])
    if not is_packed:
        tensors, starts = [one.reshape(1, 4) for one in tensors], None
    loss, stat = areal.ppo_actor_loss_fn(
        *tensors,
        eps_clip=0.2,
        loss_mask=torch.ones_like(tensors[0]).bool(),
        rejection_sampling={"upper": 1.5},
        importance_sampling_level="sequence",
        cu_seqlens=starts,
    )
    ratio = torch.tensor(0.2 / 3).exp()
    kept = torch.tensor([1.0, 1, 1, 0])
    weights = torch.tensor([0.0, 0.2, 0.0, 2.0]).exp() * kept
    torch.testing.assert_close(stat["importance_weight"].reshape(4), ratio * kept)
    torch.testing.assert_close(stat["loss"].reshape(4), -2 * ratio * weights)
    assert loss.item() == pytest.approx((-2 * ratio * weights).sum().item() / 4, rel=1e-5)


def test_a_batch_without_tokens() -> None:
    logprobs = torch.full((4,), -1.0, requires_grad=True)
    loss, stat = call(logprobs=logprobs, loss_mask=torch.zeros(4).bool())
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logprobs.grad, torch.zeros(4))
    assert stat["masked_token_ratio"] == 1.0
