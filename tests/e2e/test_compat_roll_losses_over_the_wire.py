"""ROLL's losses, in workers that have its names, against its answers."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, goldens, read
from goldens import BLAMED_FIELDS, GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import _peers, roll  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
]
OF_ACTOR = ("tis_", "cispo_", "kimi15_")


class Own:
    """Has the settings of a block, and no metrics."""

    def __init__(self, block: dict[str, Any], inputs: Any) -> None:
        given = {"enable_old_logprobs_recompute": False, **block}
        self.given = given
        settings = {name: one for name, one in given.items() if not name.startswith(OF_ACTOR)}
        settings.pop("pg_variant", None)
        settings.setdefault("train_infer_correction", {})
        actor = SimpleNamespace(worker_cls="mine.Actor", pg_variant=given.get("pg_variant"))
        self.pipeline_config = SimpleNamespace(**settings, actor_train=actor, api_key="secret")
        self.inputs, self.forwards = inputs, 0
        self.strategy: Any = SimpleNamespace(op_compute_log_probs=self.forward)

    def forward(self, *, logits: Any, **_: Any) -> Any:
        self.forwards += 1
        return logits

    def get_old_log_probs_with_cache(self, *_: Any) -> Any:
        return self.inputs.old

    def loss_func(self, data: Any, output_tensor: Any) -> Any:
        log_probs = self.strategy.op_compute_log_probs(
            logits=output_tensor, input_ids=None, attention_mask=None
        )
        assert not log_probs.requires_grad
        return None, {"own": 1.0}


class OwnPG(Own):
    def _get_or_cache_config(self, name: str, default: Any) -> Any:
        return self.given.get(name, default)


class Worker(roll.ActorLossMixin, Own):
    pass


class PGWorker(roll.ActorLossMixin, OwnPG):
    pass


def loss_of(block: dict[str, Any], inputs: Any, **more: Any) -> Any:
    mask = inputs.mask
    counts = {"response_mask": torch.tensor(max(int(mask.sum()), 1))}
    rows = {"response_mask": max(int(mask.any(1).sum()), 1)}
    data = SimpleNamespace(
        batch={
            "response_mask": torch.nn.functional.pad(mask, (1, 0)),
            "input_ids": mask,
            "advantages": inputs.advantages,
            **({} if inputs.ref is None else {"ref_log_probs": inputs.ref}),
            **({} if inputs.rollout is None else {"infer_logprobs": inputs.rollout}),
            **more,
        },
        meta_info={"batch_num_tokens": counts, "global_valid_samples": rows},
    )
    made: Any = (PGWorker if block.get("pg_variant") else Worker)(block, inputs)
    own = made.strategy
    loss, metrics = made.loss_func(data, inputs.current)
    assert metrics == {"own": 1.0}
    assert made.forwards == 1
    assert made.strategy is own
    return loss


def has_loss(golden: dict[str, Any]) -> bool:
    return answers(golden) and "loss" in golden["expect"]


@pytest.mark.parametrize("name", goldens("roll", has_loss))
def test_roll_losses(name: str) -> None:
    golden = GOLDENS[name]
    inputs = read(golden)
    check_loss(loss_of(golden["params"], inputs), inputs, golden["expect"])


def is_refused_loss(golden: dict[str, Any]) -> bool:
    return not answers(golden) and "current_log_probs" in golden["inputs"]


@pytest.mark.parametrize("name", goldens("roll", is_refused_loss))
def test_refused_blocks(name: str) -> None:
    golden = GOLDENS[name]
    with pytest.raises(cw.InvalidRequestError) as caught:
        loss_of(golden["params"], read(golden))
    paths = [v.field for v in caught.value.violations]
    assert any(blamed in path for blamed in BLAMED_FIELDS[name] for path in paths)


def a_batch() -> Any:
    return SimpleNamespace(
        current=torch.full((2, 2), -1.0, requires_grad=True),
        old=torch.full((2, 2), -1.0),
        rollout=torch.full((2, 2), -1.5),
        ref=None,
        advantages=torch.tensor([[1.0, 1.0], [2.0, 2.0]]),
        mask=torch.ones(2, 2, dtype=torch.int64),
    )


def test_rows_that_the_pipeline_leaves_out() -> None:
    batch = a_batch()
    final = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    loss = loss_of({}, batch, final_response_mask=final)
    loss.backward()
    assert loss.item() == pytest.approx(-0.5)  # of two rows, by the counts of response_mask
    torch.testing.assert_close(batch.current.grad, torch.tensor([[-0.25, -0.25], [0, 0]]))


def test_weights_that_the_pipeline_made() -> None:
    batch = a_batch()
    correction = SimpleNamespace(is_weight=SimpleNamespace(enabled=True))
    block = {"enable_old_logprobs_recompute": True, "train_infer_correction": correction}
    weights = torch.tensor([[2.0, 0.5], [1.0, 0.0]])
    loss = loss_of(block, batch, train_infer_is_weight=weights)
    assert loss.item() == pytest.approx(-(1.25 + 1.0) / 2)
    with pytest.raises(cw.InvalidRequestError, match="kimi15"):
        loss_of({**block, "pg_variant": "kimi15"}, batch, train_infer_is_weight=weights)


def test_classes_of_roll_need_roll() -> None:
    with pytest.raises(_peers.NotInstalledError, match=r"github\.com/alibaba/ROLL"):
        roll.ActorPGWorker  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'ActorPgWorker'"):
        roll.ActorPgWorker  # noqa: B018


def test_classes_of_roll_have_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROLL imports a worker's class by its path, and Ray pickles it."""
    path = "roll.pipeline.rlvr.actor_worker"
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules[path])["ActorWorker"] = Own
    made = roll.ActorWorker
    try:
        assert made.__mro__[1:3] == (roll.ActorLossMixin, Own)
        assert roll.ActorWorker is made
        assert pickle.loads(pickle.dumps(made)) is made
    finally:
        del vars(roll)["ActorWorker"]
