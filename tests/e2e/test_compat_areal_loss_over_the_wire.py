"""AReaL's PPO loss, called and reported as its trainer does, against AReaL's answers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest
from areal_trainer import ANSWERED, check, names_of, policies
from compat_goldens import check_loss, read

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import areal  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
CLIPS = ("eps_clip", "eps_clip_higher", "c_clip", "importance_sampling_level")


def is_ppo(params: dict[str, Any]) -> bool:
    others = ("use_sapo_loss", "use_cispo_loss", "m2_threshold")
    method = params.get("prox_logp_method", "recompute")
    return method in ("recompute", "reuse_train_logp") and not any(map(params.get, others))


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", names_of(is_ppo))
def test_areal_loss(name: str, is_packed: bool) -> None:
    golden = ANSWERED[name]
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
    check(expect, stat, inputs)


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
