"""ROLL's own function, called as its workers call it, against its answers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from compat_goldens import check, goldens, read
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import roll  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
# The function's metrics; the workers add those of the loss.
PREFIXES = ("actor/train_infer_", "actor/is_weight_clipfrac")


def corrects(golden: dict[str, Any]) -> bool:
    return bool(golden["params"].get("train_infer_correction")) and "weights" in golden["expect"]


def call(golden: dict[str, Any], **counts: float) -> tuple[Any, ...]:
    inputs = read(golden)
    given = golden["params"]["train_infer_correction"]
    return roll.compute_train_infer_correction(
        given, inputs.mask, inputs.old, inputs.rollout, **counts
    )


@pytest.mark.parametrize("name", goldens("roll", corrects))
def test_roll_correction(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    weights, passes, metrics = call(golden)
    check(weights, expect["weights"], inputs.mask, atol=1e-8)
    assert not weights.requires_grad
    kept = array(expect.get("mask", golden["inputs"]["response_mask"]))
    np.testing.assert_array_equal((passes * inputs.mask).numpy(), kept)
    masked = inputs.mask == 0
    assert (passes[masked] == 1).all()
    assert (weights[masked] == 1).all()
    for metric, value in metrics.items():
        expected = float(expect["metrics"][metric])
        assert value == pytest.approx(expected, rel=2e-5, abs=2e-6), metric
    correction = golden["params"]["train_infer_correction"]
    filters = correction.get("filters", [])
    if correction.get("is_weight", {}).get("enabled") or any(map(roll.is_filter, filters)):
        assert metrics.keys() == {m for m in expect["metrics"] if m.startswith(PREFIXES)}
    else:
        assert metrics.keys() <= {"actor/train_infer_final_mask_mean"}


BATCH = {
    "response_mask": torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]),
    "old_log_probs": torch.tensor([[-1.0, -2, -9], [-1.5, 0, 0], [0, 0, 0]]),
    "infer_log_probs": torch.tensor([[-1.25, -1.5, -1], [-1.5, 0, 0], [0, 0, 0]]),
}
FILTER = {"enabled": True, "agg_type": "token", "ratio_low": 0.9, "ratio_high": 2.0}
WEIGHT = {"enabled": True, "upper_bound": 1.1}


def test_global_counts_are_the_divisors() -> None:
    difference = {"enabled": True, "ratio_enabled": False, "diff_enabled": True, "diff_high": 0.02}
    cfg = {"is_weight": WEIGHT, "filters": [FILTER, difference]}
    _, _, own = roll.compute_train_infer_correction(cfg, **BATCH)
    counts = {"global_valid_samples": 5, "global_valid_tokens": torch.tensor(12)}
    _, _, metrics = roll.compute_train_infer_correction(cfg, **BATCH, **counts)
    assert metrics.keys() == own.keys()
    of_rows = {
        f"actor/train_infer_{kind}_{level}_mean@sum"
        for kind in ("ratio", "diff")
        for level in ("token", "geometric", "sequence", "segment")
    }
    of_tokens = {
        *("actor/is_weight_clipfrac@sum", "actor/train_infer_token_ratio_mask_mean@sum"),
        "actor/train_infer_token_diff_mask_mean@sum",
    }
    assert own.keys() == of_rows | of_tokens | {"actor/train_infer_final_mask_mean"}
    for name, value in own.items():
        factor = 2 / 5 if name in of_rows else 3 / 12 if name in of_tokens else 1
        assert metrics[name] == pytest.approx(value * factor, rel=1e-6)


def test_with_nothing_enabled_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(roll._service, "correct", refuse)
    share = {"actor/train_infer_final_mask_mean": pytest.approx(1.0)}
    for cfg, expected in (
        ({"is_weight": {"enabled": False}}, {}),
        ({"filters": []}, {}),
        ({"filters": [{**FILTER, "enabled": False}]}, share),
        ({"filters": [{**FILTER, "ratio_enabled": False}]}, share),
    ):
        weights, passes, metrics = roll.compute_train_infer_correction(cfg, **BATCH)
        assert torch.equal(weights, torch.ones(3, 3))
        assert torch.equal(passes, torch.ones(3, 3, dtype=torch.int64))
        assert metrics == expected


def test_dtypes_are_rolls() -> None:
    batch = {**BATCH, "old_log_probs": BATCH["old_log_probs"].double()}
    weights, passes, _ = roll.compute_train_infer_correction({"is_weight": WEIGHT}, **batch)
    assert (weights.dtype, passes.dtype) == (torch.float64, torch.int64)
    _, passes, _ = roll.compute_train_infer_correction({"filters": [FILTER]}, **BATCH)
    assert passes.dtype == torch.float32


def test_weights_have_no_gradient_and_say_so() -> None:
    cfg = {"is_weight": {**WEIGHT, "detach": False}}
    weights, _, _ = roll.compute_train_infer_correction(cfg, **BATCH)
    assert not weights.requires_grad
    batch = {**BATCH, "old_log_probs": BATCH["old_log_probs"].clone().requires_grad_()}
    with pytest.raises(cw.InvalidRequestError, match="must be true") as caught:
        roll.compute_train_infer_correction(cfg, **batch)
    assert [v.field for v in caught.value.violations] == ["cfg.is_weight.detach"]
    weights, _, _ = roll.compute_train_infer_correction({"is_weight": WEIGHT}, **batch)
    assert not weights.requires_grad


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(cw.InvalidRequestError, match="ratio_hihg"):
        roll.compute_train_infer_correction({"filters": [{**FILTER, "ratio_hihg": 2.0}]}, **BATCH)
