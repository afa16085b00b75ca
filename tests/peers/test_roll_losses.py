"""``counterweight_rl.compat.roll``'s loss beside those of ROLL's actors, cut from a checkout."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import cut
import defaults
import numpy as np
import pytest
import random_batches
import torch
from comparison import METRIC, in_float64, same_gradient
from counterweight_rl.compat import roll
from test_roll_correction import DIFFERENCES, config, original

pytestmark = [
    pytest.mark.compares("compat.roll.ActorLossMixin"),
    pytest.mark.filterwarnings("ignore:method.block", "ignore:rule"),
]

_VARIANTS = ("ppo", "vanilla_pg", "tis", "topr", "cispo", "kimi15")
workers = cut.definitions(
    "roll_workers",
    {
        "roll/utils/functionals.py": ("compute_approx_kl",),
        "roll/pipeline/rlvr/actor_worker.py": (
            *("ActorWorker.loss_func", "ActorWorker.compute_sample_weights"),
        ),
        "roll/pipeline/rlvr/actor_pg_worker.py": (
            *("ActorPGWorker._get_or_cache_config", "ActorPGWorker.loss_func"),
            *(f"ActorPGWorker._compute_{name}_loss" for name in _VARIANTS),
            "ActorPGWorker._get_pg_metrics",
        ),
    },
    torch=torch,
    np=np,
    Optional=original.Optional,
    agg_loss=original.agg_loss,
    masked_mean=original.masked_mean,
    compute_train_infer_correction=original.compute_train_infer_correction,
)
Worker = workers.ActorWorker
PGWorker = type("ActorPGWorker", (workers.ActorPGWorker, Worker), {})

MODES = ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean")
WEIGHED = config({"upper_bound": 1.1})
CORRECTED = config(
    {"weight_type": "geometric"},
    {"agg_type": "sequence", "ratio_low": 0.3, "ratio_high": 3.0},
    {**DIFFERENCES, "diff_low": -0.1, "diff_high": 0.1},
)
OF_WORKER: dict[str, dict[str, Any]] = {
    "defaults": {},
    "weights": {"train_infer_correction": WEIGHED},
    "weights and filters": {"train_infer_correction": CORRECTED},
    "KL": {"use_kl_loss": True, "kl_loss_coef": 0.1, "train_infer_correction": CORRECTED},
    "clip range": {
        **{"use_pg_clip_range": True, "pg_clip_low": 0.1, "pg_clip_high": 0.28},
        "dual_clip_loss": True,
        "rl_loss_coef": 0.5,
    },
    "rows": {"importance_sampling": "seq", "pg_clip": 0.02, "train_infer_correction": CORRECTED},
}
OF_VARIANT: dict[str, dict[str, Any]] = {
    **{name: {"pg_variant": name} for name in ("vanilla", "ppo", "tis", "cispo", "kimi15")},
    "none": {},
    "wide tis": {"pg_variant": "tis", "tis_lower_bound": 0.5, "tis_upper_bound": 1.5},
    "wide cispo": {"pg_variant": "cispo", "cispo_epsilon_low": 0.3, "cispo_epsilon_high": 0.5},
    "kimi15, tau": {"pg_variant": "kimi15", "kimi15_tau": 0.5},
}
OF_ACTOR = ("pg_variant", "tis", "cispo", "kimi15")
LEFT_OUT = torch.tensor([False, True, False, False, True, False]).unsqueeze(1)


def answer(
    kind: Any, settings: dict[str, Any], batch: random_batches.Batch, extra: dict[str, Any]
) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Returns loss, gradient and metrics of a worker; its tensors have a prompt's token first.

    Args:
        kind: The worker's class.
        settings: Of the pipeline, and of its actor_train by name.
        batch: Numbers that are 0 where the mask is, as in ROLL.
        extra: Other tensors of the batch.
    """
    of_actor = {name: one for name, one in settings.items() if name.startswith(OF_ACTOR)}
    of_pipeline = {name: one for name, one in settings.items() if name not in of_actor}
    made = kind()
    made.pipeline_config = SimpleNamespace(
        **{**vars(defaults.of_roll()), "enable_old_logprobs_recompute": False, **of_pipeline},
        actor_train=SimpleNamespace(**of_actor, api_key="secret"),
    )
    current = (batch.current * batch.mask).clone().requires_grad_()
    mask = batch.mask.long()
    counted = extra.get("final_response_mask", mask)
    tensors = {
        "response_mask": torch.nn.functional.pad(mask, (1, 0)),
        "ref_log_probs": batch.rollout * batch.mask,
        "advantages": batch.advantages * batch.mask * counted,
        "input_ids": mask,
        "infer_logprobs": batch.rollout * batch.mask,
        **extra,
    }
    # More than this rank's.
    counts = {"response_mask": 3 * int(mask.sum())}
    rows = {"response_mask": 2 * int(mask.any(1).sum())}
    if "final_response_mask" in extra:
        counts["final_response_mask"] = 2 * int(counted.sum())
        rows["final_response_mask"] = 3 * int(counted.any(1).sum())
    data = SimpleNamespace(
        batch=tensors,
        meta_info={"batch_num_tokens": counts, "global_valid_samples": rows},
        non_tensor_batch={},
    )
    forwards: list[Any] = []
    made.strategy = SimpleNamespace(
        op_compute_log_probs=lambda **_: forwards.append(1) or current,
        op_compute_entropy=lambda **_: torch.zeros_like(current),
    )
    made.logger = SimpleNamespace(info=lambda *_: None)
    made.get_old_log_probs_with_cache = lambda *_: batch.old * batch.mask
    made._pg_config_cache = {}
    made._pg_variant_logged = made._cispo_config_logged = made._kimi15_config_logged = True
    loss, metrics = made.loss_func(data, current)
    loss.backward()
    assert len(forwards) == 1
    assert current.grad is not None
    return loss.item(), current.grad, metrics


def same(
    kind: Any,
    settings: dict[str, Any],
    batch: random_batches.Batch,
    extra: dict[str, Any] | None = None,
) -> None:
    """Compares loss and gradient with those in float64, and all metrics."""
    extra = extra or {}
    ours = type("Worker", (roll.ActorLossMixin, kind), {})
    exact = {name: in_float64(one) for name, one in extra.items()}
    expected = answer(kind, settings, in_float64(batch), exact)
    actual = answer(ours, settings, batch, extra)
    assert actual[0] == pytest.approx(expected[0], rel=2e-5, abs=1e-6)
    same_gradient(actual[1], actual[1], expected[1], batch.mask)
    assert actual[2] == {
        name: pytest.approx(one, rel=METRIC["rtol"], abs=1e-5) for name, one in expected[2].items()
    }


def draw(kept: str) -> random_batches.Batch:
    if kept == "negative":
        made = random_batches.make(23)
        return random_batches.Batch(**{**vars(made), "advantages": -made.advantages.abs()})
    return random_batches.make(23, kept=kept)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kept", ["rows", "empty_row", "negative"])
@pytest.mark.parametrize("name", OF_WORKER)
def test_the_workers_loss_is_rolls_own(name: str, kept: str, mode: str) -> None:
    same(Worker, {"loss_agg_mode": mode, **OF_WORKER[name]}, draw(kept))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kept", ["rows", "empty_row", "negative"])
@pytest.mark.parametrize("corrected", [None, WEIGHED, CORRECTED], ids=["", "weights", "all"])
@pytest.mark.parametrize("name", OF_VARIANT)
def test_the_variants_are_rolls_own(name: str, corrected: Any, kept: str, mode: str) -> None:
    correction = {} if corrected is None else {"train_infer_correction": corrected}
    same(PGWorker, {"loss_agg_mode": mode, **correction, **OF_VARIANT[name]}, draw(kept))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settings", [{}, {"pg_variant": "cispo"}], ids=str)
def test_rows_that_the_pipeline_leaves_out(settings: dict[str, Any], mode: str) -> None:
    batch = draw("rows")
    final = batch.mask.long() * (~LEFT_OUT)
    block = {"loss_agg_mode": mode, "train_infer_correction": CORRECTED, **settings}
    same(PGWorker if settings else Worker, block, batch, {"final_response_mask": final})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"dual_clip_loss": True}, *({"pg_variant": one} for one in ("ppo", "tis", "vanilla"))],
    ids=str,
)
def test_weights_that_the_pipeline_made(settings: dict[str, Any], mode: str) -> None:
    batch = draw("rows")
    weights = (batch.old - batch.rollout).exp().clamp(max=1.3)
    block = {
        "loss_agg_mode": mode,
        "enable_old_logprobs_recompute": True,
        "train_infer_correction": WEIGHED,
        **settings,
    }
    kind = PGWorker if "pg_variant" in settings else Worker
    same(kind, block, batch, {"train_infer_is_weight": weights})
    # Not enabled, they are not read.
    block["train_infer_correction"] = config(None, {})
    same(kind, block, batch, {"train_infer_is_weight": 7 * weights})


def test_without_the_samplers_log_probs_nothing_has_drifted() -> None:
    batch = draw("rows")
    block = {"train_infer_correction": CORRECTED}
    same(Worker, block, batch, {"infer_logprobs": torch.zeros(0)})


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"pg_variant": "topr"}, "pg_variant"),
        ({"pg_variant": "cispo", "cispo_use_unified_mask": True}, "cispo_use_unified_mask"),
        ({"length_loss_weight": True}, "length_loss_weight"),
        ({"difficulty_loss_weight": True}, "difficulty_loss_weight"),
        ({"entropy_loss_coef": 0.1}, "entropy_loss_coef"),
        (
            {
                "pg_variant": "kimi15",
                "enable_old_logprobs_recompute": True,
                "train_infer_correction": WEIGHED,
            },
            "pg_variant",
        ),
    ],
)
def test_what_is_refused(documented: Any, settings: dict[str, Any], field: str) -> None:
    documented("settings that the module's documentation lists")
    kind = PGWorker if "pg_variant" in settings else Worker
    with pytest.raises(cw.InvalidRequestError) as caught:
        answer(type("Worker", (roll.ActorLossMixin, kind), {}), settings, draw("rows"), {})
    assert [one.field.rpartition(".")[2] for one in caught.value.violations] == [field]
