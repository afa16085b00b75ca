"""``counterweight_rl.hooks.trl`` in TRL's own trainer, which trains a tiny model.

The model, the batches and the sampler instead of vLLM are those of ``test_trl_trainer``.
"""

from __future__ import annotations

import re
from typing import Any

import counterweight_rl as cw
import pytest
import torch
import trl

if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 10):
    pytest.skip("the trainer's tests are for TRL 1.10 and newer", allow_module_level=True)

from counterweight_rl import compat
from counterweight_rl.hooks.trl import CorrectionMixin, GRPOTrainer
from counterweight_rl.transport import publisher
from server_process import ServerProcess
from test_trl_trainer import STEPS, TIGHT, TOKEN_MASK, TOKEN_TRUNCATE, Run, assert_alike

pytestmark = pytest.mark.compares("hooks.trl.CorrectionMixin")

# A rule by rows and weights by tokens, which TRL does not have.
METHOD = {
    "dialect": "verl",
    "rollout_is": "token",
    "rollout_is_threshold": 1.1,
    "rollout_rs": "seq_mean_k3",
    "rollout_rs_threshold": 0.015,
}


def without_ours(run: Run) -> Run:
    run.logs = [
        {name: value for name, value in log.items() if not name.startswith("counterweight/")}
        for log in run.logs
    ]
    run.evaluation = {
        name: value for name, value in run.evaluation.items() if "counterweight" not in name
    }
    return run


@pytest.mark.parametrize(
    "options",
    [TIGHT, {**TOKEN_TRUNCATE, **TIGHT}, {"loss_type": "vespo", **TOKEN_MASK}],
    ids=["sequence_mask", "token_truncate", "vespo, token_mask"],
)
def test_without_a_method_it_is_trls_own(options: dict[str, Any]) -> None:
    assert_alike(Run(trl.GRPOTrainer, options), without_ours(Run(GRPOTrainer, options)))


@pytest.mark.parametrize("loss_type", ["dapo", "vespo"])
def test_a_method_of_ours(loss_type: str) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    class Trainer(CorrectionMixin, trl.GRPOTrainer):
        counterweight_method = METHOD

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            seen.append(output)
            return output

    run = Run(Trainer, {"loss_type": loss_type, **TOKEN_TRUNCATE})
    assert torch.isfinite(run.weights).all()
    assert "counterweight/kept_token_fraction" not in run.logs[0]  # the dialect has verl's names
    rejected = masked = 0
    for output in seen:
        mask = output["completion_mask"] * output["tool_mask"]
        expected = compat.client().correct(
            method=cw.Dialect("verl", {k: v for k, v in METHOD.items() if k != "dialect"}),
            old_log_probs=output["old_per_token_logps"],
            rollout_log_probs=output["sampling_per_token_logps"],
            response_mask=mask,
        )
        ratio = output["importance_sampling_ratio"]
        counts = mask == 1
        assert torch.equal(ratio[counts], (expected.weights * expected.keep_mask)[counts])
        assert (ratio[~counts] == 1).all()
        rejected += int((counts & (expected.keep_mask == 0)).sum())
        masked += int((~counts).sum())
    assert rejected > 0
    assert masked > 0


def test_drift_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", "token_tis")
    run = Run(GRPOTrainer, {})
    for name in ("kl", "k3", "kept_token_fraction", "weight_mean"):
        assert f"counterweight/{name}" in run.logs[0]
    assert run.logs[0]["counterweight/k3"] > 0


@pytest.mark.parametrize("method", ["", "geo_rs_token_tis"])
def test_steps_are_reported_with_what_trls_loss_used(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", method)
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 60.0)  # for a busy machine
    server, before = ServerProcess(), compat.client()
    compat.use(target=server.address, run="trl")
    try:
        Run(GRPOTrainer, {**TOKEN_TRUNCATE, **TIGHT})
        compat.use(before)  # sends the last report
        states = re.findall(r'step_receipts_total{run="trl",state="(\w+)"} (\d+)', server.scrape())
        assert {state: int(n) for state, n in states if n != "0"} == {"used": STEPS}
        trained, corrected = (
            server.metric(f'counterweight_step_tokens_total{{entry="{entry}",run="trl"}}')
            for entry in ("trained", "corrected")
        )
        assert trained == corrected > 0
    finally:
        compat.use(before)
        server.stop()


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        ({"vllm_importance_sampling_correction": False}, "", "needs vllm_importance_sampling_corr"),
        ({"use_vllm": False}, "", "needs use_vllm=True"),
        ({}, "tokn_tis", "Did you mean 'token_tis'"),
    ],
)
def test_wrong_settings_end_the_start(
    options: dict[str, Any], method: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", method)
    with pytest.raises(ValueError, match=message):
        Run(GRPOTrainer, options)
