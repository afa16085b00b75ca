"""Corrections of slime, miles, ms-swift and AReaL by their own functions' names, against their goldens."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import areal, miles, ms_swift, slime  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]

MIS = {
    **{"tis_mode": "truncate", "tis_level": "token", "tis_lower_bound": None},
    **{"tis_upper_bound": 2.0, "use_rs": False, "rs_level": "token", "rs_lower_bound": None},
    **{"rs_upper_bound": None, "rs_veto_threshold": None, "tis_batch_normalize": False},
}


def corrected(system: str) -> dict[str, dict[str, Any]]:
    """Returns the goldens with weights, and both policies that these compare."""
    return {
        name: golden
        for name, golden in GOLDENS.items()
        if golden["dialect"] == system
        and "weights" in golden["expect"]
        and {"old_log_probs", "rollout_log_probs"} <= golden["inputs"].keys()
        and not golden["params"].get("skip_actor_forward_only")
    }


MEGATRON = {
    name: golden
    for name, golden in (corrected("slime") | corrected("miles")).items()
    if golden["params"].get("use_tis")
}
SWIFT = {
    name: golden
    for name, golden in corrected("ms_swift").items()
    if golden["params"].get("rollout_importance_sampling_mode")
}


# Others have no weights, or compare other policies.
AREAL = {
    name: golden
    for name, golden in corrected("areal").items()
    if golden["params"].get("use_decoupled_loss")
    and golden["params"].get("rejection_sampling") is not None
    and golden["params"].get("prox_logp_method", "recompute") == "recompute"
}


def tensor(golden: dict[str, Any], name: str) -> Any:
    return torch.from_numpy(array(golden["inputs"][name]).astype(np.float32))


def test_there_are_goldens_of_each_function() -> None:
    paths = [golden["params"].get("custom_tis_function_path") for golden in MEGATRON.values()]
    kinds = [None if path is None else path.rpartition(".")[2] for path in paths]
    assert min(kinds.count(k) for k in (None, "icepop_function", "compute_mis_weights_with_cp")) > 5
    kinds = [
        golden["params"]["rejection_sampling"].get("action", "mask") for golden in AREAL.values()
    ]
    assert min(kinds.count(kind) for kind in ("mask", "clamp")) > 5
    modes = {golden["params"]["rollout_importance_sampling_mode"] for golden in SWIFT.values()}
    assert modes == {"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"}


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_trainers(name: str) -> None:
    golden = MEGATRON[name]
    params = golden["params"]
    functions: Any = slime if golden["dialect"] == "slime" else miles
    path = params.get("custom_tis_function_path") or "vanilla_tis_function"
    function = getattr(functions, path.rpartition(".")[2])
    args = SimpleNamespace(**{"tis_clip": 2.0, "tis_clip_low": 0, **MIS, **params})
    masks = list(tensor(golden, "response_mask").int())
    losses = torch.ones(sum(mask.numel() for mask in masks), requires_grad=True)
    weighted, kept, metrics = function(
        args,
        pg_loss=losses,
        train_log_probs=list(tensor(golden, "old_log_probs")),
        rollout_log_probs=list(tensor(golden, "rollout_log_probs")),
        loss_masks=masks,
        total_lengths=[mask.numel() + 3 for mask in masks],
        response_lengths=[mask.numel() for mask in masks],
        parallel_state=None,
    )
    counts = torch.cat(masks) == 1
    expected = torch.from_numpy(array(golden["expect"]["weights"])).reshape(-1)
    torch.testing.assert_close(
        weighted.detach().double()[counts], expected[counts], rtol=1e-5, atol=1e-8
    )
    weighted.sum().backward()
    assert torch.equal(losses.grad, weighted.detach())
    mask = golden["expect"].get("mask", golden["inputs"]["response_mask"])
    np.testing.assert_array_equal(torch.stack(list(kept)).numpy(), array(mask))
    check_metrics(golden, {name: value.double() * counts for name, value in metrics.items()})


def check_metrics(golden: dict[str, Any], metrics: dict[str, Any]) -> None:
    """The averages are those of the trainer, where the file has samples of their own divisor."""
    params, expect = golden["params"], golden["expect"].get("metrics", {})
    if "rollout_mask_sums" in params or "step_global_batch_size" in params:
        return
    mask = tensor(golden, "response_mask").double()
    tokens = mask.sum(1).clamp(min=1)
    compared = 0
    for name, values in metrics.items():
        if name not in expect:
            continue
        sums = values.reshape(mask.shape).sum(1)
        if params.get("calculate_per_token_loss"):
            average = sums.sum() / tokens.sum()
        else:
            average = (sums / tokens).mean()
        assert average.item() == pytest.approx(float(expect[name]), rel=2e-5, abs=2e-6), name
        compared += 1
    if "mis_kl" in expect or "tis" in expect:
        assert compared == len(metrics)


@pytest.mark.parametrize("name", SWIFT)
def test_ms_swift(name: str) -> None:
    golden = SWIFT[name]

    class Trainer(ms_swift.RolloutCorrectionMixin):
        rollout_importance_sampling_mode = golden["params"]["rollout_importance_sampling_mode"]
        rollout_importance_sampling_threshold = golden["params"].get(
            "rollout_importance_sampling_threshold", 2.0
        )

    mask = tensor(golden, "response_mask").bool()
    ratio = tensor(golden, "old_log_probs") - tensor(golden, "rollout_log_probs")
    ratio[~mask] = -1e10  # ms-swift's padding
    weights = Trainer()._apply_rollout_importance_sampling(ratio.double(), mask)
    assert weights.dtype == torch.float64
    expected = torch.from_numpy(array(golden["expect"]["weights"]))
    torch.testing.assert_close(weights[mask], expected[mask], rtol=1e-5, atol=1e-8)
    assert not weights[~mask].any()


def test_ms_swifts_class_gets_the_method() -> None:
    class Trainer:
        rollout_importance_sampling_mode = "token_truncate"
        rollout_importance_sampling_threshold = 1.5

        def _apply_rollout_importance_sampling(self, *_: Any) -> Any:
            raise AssertionError

    ms_swift.RolloutCorrectionMixin.install(Trainer)
    ratio = torch.tensor([[0.0, 1.0, -1.0, 0.25]])
    weights = Trainer()._apply_rollout_importance_sampling(ratio, torch.ones(1, 4))
    torch.testing.assert_close(weights, ratio.exp().clamp(max=1.5))


@dataclass
class RejectionSamplingConfig:
    """AReaL's class, with its defaults."""

    level: str = "token"
    action: str = "mask"
    metric: str = "ratio"
    agg: str = "mean"
    upper: float = 5.0
    lower: float | None = None


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", AREAL)
def test_areal(name: str, is_packed: bool) -> None:
    golden = AREAL[name]
    config = RejectionSamplingConfig(**golden["params"]["rejection_sampling"])
    inputs = [
        tensor(golden, policy) for policy in ("old_log_probs", "rollout_log_probs", "response_mask")
    ]
    inputs[2] = inputs[2].int()
    rows, width = inputs[2].shape
    starts = None
    if is_packed:
        inputs = [one.reshape(-1) for one in inputs]
        starts = torch.arange(rows + 1) * width
    result = areal.apply_rejection_sampling(*inputs, starts, config)
    mask = torch.from_numpy(array(golden["expect"].get("mask", golden["inputs"]["response_mask"])))
    assert torch.equal(result.loss_mask.reshape(rows, width), mask.int())
    expected = torch.from_numpy(array(golden["expect"]["weights"])) * mask
    torch.testing.assert_close(
        result.behave_imp_weight.reshape(rows, width).double(), expected, rtol=1e-5, atol=1e-8
    )
    filtered = golden["expect"].get("metrics", {}).get("rs_filtered_fraction")
    if filtered is not None:
        assert result.filtered_fraction == pytest.approx(float(filtered), rel=2e-5, abs=2e-6)


def test_areals_object_clamps_from_above_alone() -> None:
    """Its constructor puts 0 for an absent lower bound of ``clamp``."""
    config = RejectionSamplingConfig(action="clamp", upper=1.5, lower=0.0)
    old = torch.tensor([[-1.0, -1.0, -1.0]])
    rollout = old - torch.tensor([[1.0, -1.0, 0.25]])
    result = areal.apply_rejection_sampling(old, rollout, torch.ones(1, 3), None, config)
    torch.testing.assert_close(result.behave_imp_weight, (old - rollout).exp().clamp(max=1.5))
    assert result.filtered_fraction == pytest.approx(1 / 3)


def test_areals_packed_sequences_have_starts() -> None:
    flat = torch.zeros(4)
    mask = torch.ones(4)
    result = areal.apply_rejection_sampling(flat, flat - 0.5, mask, None, {"upper": 1.5})
    assert result.loss_mask.tolist() == [0.0] * 4
    assert result.filtered_fraction == 1.0
    with pytest.raises(ValueError, match=r"^cu_seqlens is required"):
        areal.apply_rejection_sampling(flat, flat, mask, None, {"level": "sequence"})


def test_parts_of_samples_are_refused() -> None:
    ones = [torch.ones(4)]
    given: dict[str, Any] = {
        **{"pg_loss": torch.ones(2), "train_log_probs": ones, "rollout_log_probs": ones},
        "loss_masks": ones,
    }
    args = SimpleNamespace(tis_clip=2.0, tis_clip_low=0.0, use_tis=True)
    for function in (slime.vanilla_tis_function, slime.icepop_function):
        with pytest.raises(ValueError, match="set --context-parallel-size 1"):
            function(args, **given)
    with pytest.raises(ValueError, match="set --context-parallel-size 1"):
        slime.compute_mis_weights_with_cp(args, **given, total_lengths=[9], response_lengths=[4])


def test_mis_without_its_weights_has_metrics() -> None:
    rows = [-torch.ones(4), -torch.ones(2)]
    masks = [torch.ones(4, dtype=torch.int), torch.tensor([1, 0], dtype=torch.int)]
    args = SimpleNamespace(use_tis=False, **MIS)
    weights, kept, metrics = slime.compute_mis_weights(
        args, train_log_probs=rows, rollout_log_probs=[row - 0.5 for row in rows], loss_masks=masks
    )
    assert weights is None
    assert kept is masks
    assert [row.tolist() for row in metrics["kl"]] == [[-0.5] * 4, [-0.5, 0.0]]
    assert set(metrics) == {"kl", "k3_kl"}
