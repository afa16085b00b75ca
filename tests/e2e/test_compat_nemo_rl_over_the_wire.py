"""NeMo-RL's ClippedPGLossFn, called as its trainers call it, against its answers."""

from __future__ import annotations

import math
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, check_metrics, goldens, read
from goldens import BLAMED_FIELDS, GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import nemo_rl  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
# An option of GRPO and facts of the call, not fields of the loss.
FACTS = ("global_valid_seqs", "global_valid_toks")
FILTER = "seq_logprob_error_threshold"
# Metrics of the filter, which the loss does not report.
OF_FILTER = (
    *(
        f"{s}_seq_mult_prob_error{after}"
        for s in ("max", "mean", "min")
        for after in ("", "_after_mask")
    ),
    "num_masked_seqs",
)


def is_loss(golden: dict[str, Any]) -> bool:
    filters = golden["params"].get(FILTER) is not None
    return answers(golden) and "loss" in golden["expect"] and not filters


def called(golden: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Returns the inputs, the loss and the metrics."""
    params = golden["params"]
    inputs = read(golden)
    settings = {name: value for name, value in params.items() if name not in (*FACTS, FILTER)}
    loss_fn = nemo_rl.ClippedPGLossFn(settings)
    # NeMo-RL's tensors begin with a position that has no log-prob.
    data = {
        name: torch.nn.functional.pad(one, (1, 0), value=math.nan)
        for name, one in {
            "advantages": inputs.advantages,
            "prev_logprobs": inputs.old,
            "generation_logprobs": inputs.rollout,
            "reference_policy_logprobs": inputs.ref,
            "token_mask": inputs.mask.float(),
        }.items()
        if one is not None
    }
    data["sample_mask"] = inputs.mask.any(dim=1).float()
    counts = [params.get(name) for name in FACTS]
    counts = [None if one is None else torch.tensor(one) for one in counts]
    return inputs, *loss_fn(inputs.current, data, *counts)


@pytest.mark.parametrize("name", goldens("nemo_rl", is_loss))
def test_nemo_rl_loss(name: str) -> None:
    golden = GOLDENS[name]
    inputs, loss, metrics = called(golden)
    expect = golden["expect"]
    check_loss(loss, inputs, expect)
    assert expect["metrics"].keys() - {*OF_FILTER, "sampling_importance_ratio"} <= metrics.keys()
    check_metrics(metrics, expect, but=OF_FILTER)


def is_refused_setting(golden: dict[str, Any]) -> bool:
    return not answers(golden) and FILTER not in golden["params"]


@pytest.mark.parametrize("name", goldens("nemo_rl", is_refused_setting))
def test_nemo_rl_refuses_a_setting_at_once(name: str) -> None:
    golden = GOLDENS[name]
    with pytest.raises(cw.InvalidRequestError) as caught:
        nemo_rl.ClippedPGLossFn(golden["params"])
    paths = [v.field for v in caught.value.violations]
    assert any(blamed in path for blamed in BLAMED_FIELDS[name] for path in paths)


def test_a_ratio_forced_to_one_is_read_before_one_left_out() -> None:
    """With both settings NeMo-RL's loss is the advantages times a ratio of 1, not log-probs."""
    settings = {"force_on_policy_ratio": True, "reference_policy_kl_penalty": 0.0}
    current = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    ones = torch.ones(1, 3)
    data = {
        **{"advantages": 3 * ones, "generation_logprobs": -ones, "token_mask": ones},
        "sample_mask": torch.ones(1),
    }
    for others in ({}, {"disable_ppo_ratio": True}):
        loss_fn = nemo_rl.ClippedPGLossFn({**settings, **others})
        loss, metrics = loss_fn(current, data, None, None)
        assert loss.item() == pytest.approx(-3.0)
        assert metrics["probs_ratio"] == pytest.approx(1.0)


def test_rows_without_a_token_count_as_samples() -> None:
    """NeMo-RL averages over sample_mask, also over a sample that has no token."""
    current = torch.full((2, 2), -1.0)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    filled = torch.full((2, 3), -1.0)
    data = {
        **{"advantages": torch.full((2, 3), 3.0), "generation_logprobs": filled},
        **{"prev_logprobs": filled, "token_mask": mask, "sample_mask": torch.ones(2)},
    }
    settings = {"token_level_loss": False, "reference_policy_kl_penalty": 0.0}
    loss, metrics = nemo_rl.ClippedPGLossFn(settings)(current, data, None, None)
    assert loss.item() == pytest.approx(-1.5)
    assert metrics["num_valid_samples"] == 2
