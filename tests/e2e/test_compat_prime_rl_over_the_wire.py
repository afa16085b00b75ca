"""prime-rl's losses, called for one sequence after another as it does, against its answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from compat_goldens import answers, goldens, read
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import prime_rl  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:rule"),
]
FUNCTIONS = {"default": prime_rl.default_loss_fn, "ipo": prime_rl.ipo_loss_fn}
STATISTICS = {
    "mean": torch.mean,
    "median": torch.median,
    "std": torch.std,
    "min": torch.min,
    "max": torch.max,
}


def is_ref_kl(golden: dict[str, Any]) -> bool:
    return bool(golden["params"].get("type") == "ref_kl" and answers(golden))


def is_of_rl(golden: dict[str, Any]) -> bool:
    return golden["params"].get("type") != "ref_kl" and answers(golden)


def inputs_of(
    current: Any, rollout: Any, gains: Any, mask: Any, weights: Any = None, ref: Any = None
) -> Any:
    return SimpleNamespace(
        trainer_logprobs=current,
        inference_logprobs=rollout,
        ref_logprobs=ref,
        advantages=gains,
        loss_mask=mask,
        loss_weights=weights,
    )


@pytest.mark.parametrize("name", goldens("prime_rl", is_of_rl))
def test_prime_rl(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, expect = dict(golden["params"]), read(golden), golden["expect"]
    function = FUNCTIONS[params.pop("type", "default")]
    scale = params.pop("rl_scale", max(int(inputs.mask.sum()), 1))
    params.pop("ref_kl_scale", None)
    rows = [inputs.current, inputs.rollout, inputs.advantages, inputs.mask.bool()]
    found = [function(inputs_of(*row), params) for row in zip(*rows, strict=True)]
    same(sum(one.loss for one in found) / scale, found, inputs, expect)


@pytest.mark.parametrize("name", goldens("prime_rl", is_ref_kl))
def test_ref_kl(name: str) -> None:
    """prime-rl skips rows without a token."""
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    scale = golden["params"].get("ref_kl_scale", max(int(inputs.mask.sum()), 1))
    rows = [inputs.current, inputs.rollout, inputs.ref, inputs.mask.bool()]
    found = [
        prime_rl.ref_kl_loss_fn(inputs_of(current, rollout, None, mask, ref=ref))
        for current, rollout, ref, mask in zip(*rows, strict=True)
    ]
    loss = sum(one.loss for one in found) / scale
    counted = [one for one, mask in zip(found, inputs.mask, strict=True) if mask.any()]
    same(loss, counted, inputs, expect)


def same(loss: Any, found: list[Any], inputs: Any, expect: dict[str, Any]) -> None:
    """Compares the loss, its gradient, and statistics of the rows' metrics."""
    np.testing.assert_allclose(loss.item(), float(expect["loss"]), rtol=2e-5, atol=1e-7)
    loss.backward()
    if "grad" in expect:
        wanted, counts = array(expect["grad"]), inputs.mask.numpy() == 1
        atol = 1e-6 * np.abs(wanted[counts]).max(initial=0.0)
        actual = inputs.current.grad.numpy()
        np.testing.assert_allclose(actual[counts], wanted[counts], rtol=2e-5, atol=atol)
        assert not actual[~counts].any()
    compared = set()
    for metric, value in expect["metrics"].items():
        own, _, statistic = metric.rpartition("/")
        if not found or own not in found[0].metrics:
            assert metric.startswith(("mismatch_kl/all/", "loss")), metric
            continue
        values = torch.stack([one.metrics[own] for one in found])
        actual = STATISTICS[statistic](values).item()
        np.testing.assert_allclose(actual, float(value), rtol=2e-5, atol=2e-6, err_msg=metric)
        compared.add(own)
    assert compared == (found[0].metrics.keys() if found else set())


def test_settings_are_refused_by_name() -> None:
    flat = torch.full((3,), -1.0)
    given = inputs_of(flat, flat, flat, torch.ones(3).bool())
    for fields, field in (
        ({"dppo_mask_high": -0.1}, "dppo_mask_high"),
        ({"adv_tua": 1.0}, "adv_tau"),
    ):
        with pytest.raises(cw.InvalidRequestError, match=field):
            prime_rl.default_loss_fn(given, fields)
    with pytest.raises(cw.InvalidRequestError, match="ipo_threshold"):
        prime_rl.ipo_loss_fn(given, {"ipo_threshold": -1.0})


def test_loss_weights_of_other_components() -> None:
    """A token of weight 0 belongs to another component."""
    flat, mask = torch.full((3,), -1.0), torch.tensor([True, False, True])
    weights = torch.tensor([1.0, 0.0, 1.0])
    loss = prime_rl.default_loss_fn(inputs_of(flat, flat, torch.ones(3), mask, weights)).loss
    assert loss.item() == pytest.approx(-2.0)
    with pytest.raises(ValueError, match="takes no loss_weights but 1"):
        prime_rl.ipo_loss_fn(inputs_of(flat, flat, flat, mask, weights / 2))


def test_masked_positions_are_not_read() -> None:
    mask = torch.tensor([True, False, True])
    hole = torch.where(mask, -1.0, torch.nan)
    current = hole.clone().requires_grad_()
    gains = torch.tensor([1.0, torch.nan, -1.0])
    answer = prime_rl.default_loss_fn(inputs_of(current, hole, gains, mask))
    answer.loss.backward()
    assert answer.loss.item() == pytest.approx(0.0, abs=1e-7)
    torch.testing.assert_close(current.grad, torch.tensor([-1.0, 0.0, 1.0]))
    assert all(one.isfinite() for one in answer.metrics.values())


def test_ref_kl_needs_the_reference() -> None:
    flat, mask = torch.full((3,), -1.0), torch.ones(3).bool()
    with pytest.raises(ValueError, match="requires ref_logprobs"):
        prime_rl.ref_kl_loss_fn(inputs_of(flat, flat, None, mask))
    with pytest.raises(ValueError, match="takes no loss_weights but 1"):
        prime_rl.ref_kl_loss_fn(inputs_of(flat, flat, None, mask, torch.full((3,), 0.5), flat))


def test_ref_kl_reads_no_masked_position() -> None:
    mask = torch.tensor([True, False, True])
    hole = torch.where(mask, -1.0, torch.nan)
    current = hole.clone().requires_grad_()
    answer = prime_rl.ref_kl_loss_fn(inputs_of(current, hole, None, mask, ref=hole + 0.5))
    answer.loss.backward()
    assert answer.loss.item() == pytest.approx(-1.0)
    torch.testing.assert_close(current.grad, torch.tensor([-0.5, 0.0, -0.5]))
    assert answer.metrics["ref_kl"].item() == pytest.approx(0.5)
    assert all(one.isfinite() for one in answer.metrics.values())
