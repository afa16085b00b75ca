"""The works of torch_works.py, uncompiled, give the answers of the methods that they are timed against."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from counterweight_rl.local import library
from headline import VERL_BLOCK

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
import eager_torch  # noqa: E402
from torch_works import WHOLE_GRAPH, WORKS, Answer, Work  # noqa: E402

SHAPE = (24, 150)
NO_METRICS = ", no metrics"
# Torch adds in float32.
ROUNDING = {"rtol": 1e-5, "atol": 1e-7}
WIRE_NAMES = {
    "old": "old_log_probs",
    "rollout": "rollout_log_probs",
    "current": "current_log_probs",
    "advantages": "advantages",
    "mask": "response_mask",
}


@pytest.fixture(scope="module")
def local() -> Iterator[cw.Client]:
    try:
        library.load()
    except cw.CounterweightError as why:
        pytest.skip(str(why))
    with cw.Client("local:") as client:
        yield client


@pytest.fixture(autouse=True)
def whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, replacement in WHOLE_GRAPH.items():
        monkeypatch.setattr(eager_torch, name, replacement)


@pytest.fixture(scope="module")
def batch() -> dict[str, Any]:
    """Rows that end at different tokens and lack some before; log ratios reach every bound."""
    torch.manual_seed(0)
    lengths = torch.randint(1, SHAPE[1] + 1, SHAPE[:1])
    lengths[0] = SHAPE[1]
    mask = (torch.arange(SHAPE[1]) < lengths[:, None]) & (torch.rand(SHAPE) < 0.9)
    mask[:, 0] = True
    # Quiet rows keep their tokens, loud ones leave the bounds of a sequence's mean, too.
    spread = torch.logspace(-2, 0.3, SHAPE[0])[:, None]
    rollout = torch.empty(SHAPE).exponential_().neg_()
    old = rollout + spread * torch.randn(SHAPE)
    current = old + spread * torch.randn(SHAPE)
    advantages = torch.randn(SHAPE)
    return {
        "rollout": rollout,
        "old": old,
        "current": current,
        "advantages": advantages,
        "mask": mask.float(),
    }


def method_of(work: Work) -> cw.Dialect | str:
    name = work.method.removesuffix(NO_METRICS)
    return cw.Dialect("verl", VERL_BLOCK) if name == "token_tis+3_rules" else name


def answers(local: cw.Client, batch: dict[str, Any], work: Work) -> tuple[Answer, cw.Result[Any]]:
    mine = work.answer(*(batch[name] for name in work.inputs))
    theirs = local.correct(
        method=method_of(work),
        metrics=not work.method.endswith(NO_METRICS),
        **{WIRE_NAMES[name]: batch[name] for name in work.inputs},
    )
    return mine, theirs


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.method)
def test_a_work_gives_the_answer_of_its_method(
    local: cw.Client, batch: dict[str, Any], work: Work
) -> None:
    mine, theirs = answers(local, batch, work)
    assert torch.equal(mine.keep.bool(), theirs.keep_mask.bool())
    for name in ("weights", "gradient"):
        found, expected = getattr(mine, name), getattr(theirs, name)
        assert (found is None) == (expected is None)
        if found is not None:
            torch.testing.assert_close(found, expected, **ROUNDING)
    assert (mine.loss is None) == (theirs.loss is None)
    if mine.loss is not None:
        assert float(mine.loss) == pytest.approx(theirs.loss, rel=1e-5)
    assert (mine.metrics is None) == work.method.endswith(NO_METRICS)
    assert all(math.isfinite(value) for value in (mine.metrics or {}).values())


def test_the_batch_reaches_both_sides_of_the_bounds(
    local: cw.Client, batch: dict[str, Any]
) -> None:
    found = {work.method: answers(local, batch, work)[1] for work in WORKS}
    tokens = batch["mask"].sum()
    assert 0 < found["token_tis+3_rules"].keep_mask.sum() < tokens
    assert 0 < (found["reinforce_pro"].weights != 0).sum() < tokens
    assert (found["token_tis"].weights == 2).any()
    for name in ("ppo_clip", "gspo"):
        assert 0 < found[name].metrics["loss/clip_fraction"] < 1
    assert found["ppo_clip"].metrics["loss/dual_clip_fraction"] > 0
