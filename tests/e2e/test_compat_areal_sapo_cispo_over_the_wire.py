"""AReaL's SAPO and CISPO losses, called and reported as its trainer does, against AReaL's answers."""

from __future__ import annotations

import math
from typing import Any

import counterweight_rl as cw
import pytest
from areal_trainer import ANSWERED, check, names_of, policies
from compat_goldens import check_loss, read

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import areal  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
PACKED = pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])


def starts(inputs: Any, *, is_packed: bool) -> Any:
    rows, width = inputs.mask.shape
    return torch.arange(rows + 1) * width if is_packed else None


@PACKED
@pytest.mark.parametrize("name", names_of(lambda params: params.get("use_sapo_loss")))
def test_areal_sapo(name: str, is_packed: bool) -> None:
    golden = ANSWERED[name]
    params, inputs = golden["params"], read(golden)
    assert not params.get("recompute_logprob")
    tensors = [inputs.current, inputs.rollout, inputs.advantages, inputs.mask.bool()]
    if is_packed:
        tensors = [one.reshape(-1) for one in tensors]
    current, rollout, advantages, mask = tensors
    loss, stat = areal.sapo_loss_fn(
        current,
        rollout,
        advantages,
        params.get("sapo_tau_pos", 1.0),
        params.get("sapo_tau_neg", 1.05),
        mask,
        params.get("importance_sampling_level", "token"),
        starts(inputs, is_packed=is_packed),
    )
    check_loss(loss, inputs, golden["expect"])
    check(golden["expect"], stat, inputs)


@PACKED
@pytest.mark.parametrize("name", names_of(lambda params: params.get("use_cispo_loss")))
def test_areal_cispo(name: str, is_packed: bool) -> None:
    golden = ANSWERED[name]
    params, inputs = golden["params"], read(golden)
    proximal, rollout = policies(params, inputs)
    tensors = [inputs.current, proximal, inputs.advantages, inputs.mask.bool(), rollout]
    if is_packed:
        tensors = [one.reshape(-1) for one in tensors]
    current, proximal, advantages, mask, rollout = tensors
    loss, stat = areal.cispo_loss_fn(
        current,
        proximal,
        advantages,
        params.get("eps_clip", 0.2),
        mask,
        params["eps_clip_higher"],
        rollout,
        params["rejection_sampling"],
        starts(inputs, is_packed=is_packed),
    )
    check_loss(loss, inputs, golden["expect"])
    check(golden["expect"], stat, inputs)


HOLE = torch.tensor([True, False, True, True])
LOG_PROBS = torch.where(HOLE, torch.tensor([-1.0, 0, -2.0, -1.5]), torch.nan)
GAINS = torch.tensor([1.0, 9.0, -2.0, -0.5])


def rows(ratios: list[float]) -> Any:
    """Returns log-probs with these ratios to LOG_PROBS, which have a hole."""
    return (LOG_PROBS + torch.tensor(ratios).log()).requires_grad_()


def test_sapo_from_its_formula() -> None:
    """Both signs of the advantage, and a position that no one reads."""
    ratios = [1.5, 1.0, 0.4, 3.0]
    current = rows(ratios)
    loss, stat = areal.sapo_loss_fn(current, LOG_PROBS, GAINS, 1.0, 2.0, HOLE)
    loss.backward()
    total, slopes = 0.0, []
    for ratio, gain, counts in zip(ratios, GAINS.tolist(), HOLE.tolist(), strict=True):
        tau = 1.0 if gain > 0 else 2.0
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        total -= counts * 4 / tau * gate * gain / 3
        slopes.append(-counts * 4 * gate * (1 - gate) * ratio * gain / 3)
    assert loss.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(current.grad, torch.tensor(slopes))
    for name, values in stat.items():
        assert not values[1], name
        assert not values.requires_grad, name


def test_cispo_from_its_formula() -> None:
    """Without rejection sampling, and without its policy."""
    current = rows([1.5, 1.0, 0.4, 3.0])
    loss, stat = areal.cispo_loss_fn(current, LOG_PROBS, GAINS, 0.3, HOLE, 1.0)
    loss.backward()
    factors = torch.tensor([1.5, 0, 0.7, 2.0]) * GAINS
    terms = -(factors * current.detach())[HOLE]
    assert loss.item() == pytest.approx(terms.sum().item() / 3, rel=1e-5)
    torch.testing.assert_close(current.grad, -factors / 3)
    torch.testing.assert_close(stat["loss"][HOLE], terms)
    assert stat["clip_mask"].tolist() == [False, False, True, True]
    assert not any(key.startswith("behave") for key in stat)


def test_settings_are_refused_by_name() -> None:
    flat, mask = torch.full((4,), -1.0), torch.ones(4).bool()
    for taus, name in (((0.0, 1.0), "sapo_tau_pos"), ((1.0, -1.0), "sapo_tau_neg")):
        with pytest.raises(cw.InvalidRequestError, match=name):
            areal.sapo_loss_fn(flat, flat, flat, *taus, mask)
    for higher in (None, 0.0, -1.0):
        with pytest.raises(cw.InvalidRequestError, match="eps_clip_higher"):
            areal.cispo_loss_fn(flat, flat, flat, 0.2, mask, higher)
    with pytest.raises(cw.InvalidRequestError, match="rollout_log_probs"):
        areal.cispo_loss_fn(flat, flat, flat, 0.2, mask, 1.0, rejection_sampling={})
    with pytest.raises(ValueError, match=r"^cu_seqlens is required"):
        areal.sapo_loss_fn(flat, flat, flat, 1.0, 1.0, mask, "sequence")
    with pytest.raises(ValueError, match=r"^cu_seqlens is required"):
        areal.cispo_loss_fn(
            flat, flat, flat, 0.2, mask, 1.0, flat, rejection_sampling={"level": "sequence"}
        )


def test_a_batch_without_tokens() -> None:
    none = torch.zeros(4).bool()
    for function, settings in ((areal.sapo_loss_fn, (1.0, 1.05)), (areal.cispo_loss_fn, (0.2,))):
        current = torch.full((4,), -1.0, requires_grad=True)
        given = {} if function is areal.sapo_loss_fn else {"eps_clip_higher": 1.0}
        loss, _ = function(
            current, current.detach(), torch.ones(4), *settings, loss_mask=none, **given
        )
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(current.grad, torch.zeros(4))
