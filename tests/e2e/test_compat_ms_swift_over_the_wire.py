"""ms-swift's losses, in trainers that have its names, against its answers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, goldens, read
from goldens import BLAMED_FIELDS, GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import ms_swift  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
DEFAULTS: dict[str, Any] = {
    **{"loss_type": "grpo", "epsilon": 0.2, "epsilon_high": None, "delta": None, "beta": 0.04},
    **{"importance_sampling_level": "token", "tau_pos": 1.0, "tau_neg": 1.05},
    **{"max_completion_length": 512, "off_policy_sequence_mask_delta": None},
    "rollout_importance_sampling_mode": None,
    "rollout_importance_sampling_threshold": 2.0,
    "log_rollout_offpolicy_metrics": False,
    "disable_rollout_importance_sampling": False,
    **{"gradient_accumulation_steps": 1, "num_microbatches": 1, "dp_size": 1},
    **{"kl_in_reward": False, "overlong_filter": False, "compute_entropy": False},
}


class Trainer:
    """Has the settings of a block, and no metrics."""

    def __init__(self, block: dict[str, Any]) -> None:
        given = {**DEFAULTS, **block}
        high = given["epsilon_high"]
        vars(self).update(given, epsilon_low=given["epsilon"])
        self.epsilon_high = given["epsilon"] if high is None else high
        self.args = SimpleNamespace(**given)
        self.accelerator = SimpleNamespace(num_processes=1)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=1)

    def _get_per_token_logps_and_entropies(self, model: Any, *_: Any, **__: Any) -> Any:
        return model, None

    def _undo_gradient_accumulation_scaling(self, loss: Any) -> Any:
        by_items = self.args.loss_type in ("dapo", "cispo")
        return loss * self.args.gradient_accumulation_steps if by_items else loss

    def _compute_loss_and_metrics(self, model: Any, inputs: Any, batch: Any) -> Any:
        log_probs, _ = self._get_per_token_logps_and_entropies(model, inputs, batch)
        assert not log_probs.requires_grad
        return None, {"own": 1.0}

    def loss_func(self, output_tensor: Any, data: Any) -> Any:
        assert not output_tensor.requires_grad
        return None, {"own": 1.0}


class Transformers(ms_swift.GRPOLossMixin, Trainer):
    pass


class Megatron(ms_swift.MegatronGRPOLossMixin, Trainer):
    pass


def loss_of(monkeypatch: pytest.MonkeyPatch, block: dict[str, Any], inputs: SimpleNamespace) -> Any:
    batch = SimpleNamespace(
        completion_mask=inputs.mask.bool(),
        truncated_mask=torch.zeros(len(inputs.mask), dtype=torch.bool),
        advantages=inputs.advantages,
        ref_per_token_logps=inputs.ref,
        old_per_token_logps=inputs.old,
        rollout_per_token_logps=inputs.rollout,
        num_items_in_batch=torch.tensor(
            block.get("num_items_in_batch", max(int(inputs.mask.sum()), 1))
        ),
    )
    if block.get("backend") == "megatron":
        mpu = SimpleNamespace(
            get_data_parallel_world_size=lambda: block.get("dp_size", 1),
            get_data_parallel_group=lambda **_: None,
        )
        core = SimpleNamespace(mpu=mpu)
        monkeypatch.setitem(sys.modules, "megatron", SimpleNamespace(core=core))
        monkeypatch.setitem(sys.modules, "megatron.core", core)
        made: Any = Megatron(block)
        made.micro_batch_size = len(inputs.mask)
        loss, metrics = made.loss_func(inputs.current, {"grpo_batch": batch})
    else:
        loss, metrics = Transformers(block)._compute_loss_and_metrics(inputs.current, {}, batch)
    assert metrics == {"own": 1.0}
    return loss


@pytest.mark.parametrize(
    "name", goldens("ms_swift", lambda one: answers(one) and "loss" in one["expect"])
)
def test_ms_swift_losses(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    golden = GOLDENS[name]
    inputs = read(golden)
    check_loss(loss_of(monkeypatch, golden["params"], inputs), inputs, golden["expect"])


@pytest.mark.parametrize("name", goldens("ms_swift", lambda one: not answers(one)))
def test_refused_blocks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    golden = GOLDENS[name]
    with pytest.raises(cw.InvalidRequestError) as caught:
        loss_of(monkeypatch, golden["params"], read(golden))
    paths = [v.field for v in caught.value.violations]
    assert any(blamed in path for blamed in BLAMED_FIELDS[name] for path in paths)


def test_settings_are_refused_by_name() -> None:
    made: Any = Transformers({})
    made.top_entropy_quantile, made.sdar_loss_coef = 0.5, 0.1
    made.chord_sft_iterator = iter(())
    with pytest.raises(cw.InvalidRequestError) as caught:
        made._compute_loss_and_metrics(None, {}, None)
    fields = [v.field for v in caught.value.violations]
    assert fields == ["top_entropy_quantile", "sdar_loss_coef", "chord_sft_dataset"]
    with pytest.raises(cw.InvalidRequestError, match="use_liger_kernel"):
        made.compute_liger_loss(None, {}, None)


def test_an_installation_replaces_a_class_once() -> None:
    class Own(Trainer):
        pass

    ms_swift.GRPOLossMixin.install(Own)
    ms_swift.GRPOLossMixin.install(Own)
    made: Any = Own({"beta": 0.0})
    log_probs = torch.full((1, 2), -1.0, requires_grad=True)
    batch = SimpleNamespace(
        completion_mask=torch.ones(1, 2).bool(),
        truncated_mask=torch.zeros(1).bool(),
        advantages=torch.tensor([[2.0, 2.0]]),
        ref_per_token_logps=None,
        old_per_token_logps=None,
        rollout_per_token_logps=None,
        num_items_in_batch=torch.tensor(2),
    )
    loss, metrics = made._compute_loss_and_metrics(log_probs, {}, batch)
    loss.backward()
    assert metrics == {"own": 1.0}
    assert loss.item() == pytest.approx(-2.0)
    torch.testing.assert_close(log_probs.grad, torch.full((1, 2), -1.0))
    # The forward pass is the class's again.
    assert "_get_per_token_logps_and_entropies" not in vars(made)
