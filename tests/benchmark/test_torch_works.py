"""The works of torch_works.py, uncompiled, give the answers of the methods that they are timed against."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from counterweight_rl import Aggregation, Bound, Estimator, Level, RatioSource
from counterweight_rl.local import library
from headline import MAX_K3, MEAN_BOUNDS, TOKEN_BOUNDS, UPPER, VERL_BLOCK

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
import eager_torch  # noqa: E402
from torch_works import WHOLE_GRAPH, WORKS  # noqa: E402
from work_parts import Answer, Work  # noqa: E402

SHAPE = (24, 150)
NO_METRICS = ", no metrics"
# Torch adds in float32. The absolute error is that of exp(l) - 1 - l near l = 0, which cancels.
ROUNDING = {"rtol": 1e-5, "atol": 1e-7}
# Metrics that torch computes without rounding: counts, extrema of inputs' differences, constants.
EXACT = re.compile(
    r"tokens|sequences|(.*/token_ratio|log_ratio)[/_](min|max)|.*_tokens|.*/count"
    r"|weight_(normalizer|clipped_low_fraction)|.*/gradient_rejected_share"
)
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


def headline() -> cw.CorrectionConfig:
    """HeadlineSpec() of headline_spec.cc; its rules have the names of native metrics."""
    common: dict[str, Any] = {"ratio_source": RatioSource.OLD_ROLLOUT, "token_clamp": 20.0}

    def rule(
        estimator: Estimator, aggregation: Aggregation, lower: float | None, upper: float
    ) -> cw.RejectionRule:
        return cw.RejectionRule(
            estimator=estimator, aggregation=aggregation, lower=lower, upper=upper, **common
        )

    return cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            level=Level.TOKEN, bound=Bound.TRUNCATE, upper=UPPER, **common
        ),
        rules=[
            rule(Estimator.RATIO, Aggregation.TOKEN, *TOKEN_BOUNDS),
            rule(Estimator.RATIO, Aggregation.MEAN, *MEAN_BOUNDS),
            rule(Estimator.K3, Aggregation.MAX, None, MAX_K3),
        ],
    )


def method_of(work: Work) -> cw.CorrectionConfig | cw.Dialect | str:
    name = work.method.removesuffix(NO_METRICS)
    if name != "token_tis+3_rules":
        return name
    return headline() if work.metrics == "same" else cw.Dialect("verl", VERL_BLOCK)


def answers(local: cw.Client, batch: dict[str, Any], work: Work) -> tuple[Answer, cw.Result[Any]]:
    # This fails where a work is not one whole graph; generating code would take minutes.
    torch.compiler.reset()
    graph = torch.compile(work.answer, backend="eager", fullgraph=True, dynamic=False)
    mine = graph(*(batch[name] for name in work.inputs))
    theirs = local.correct(
        method=method_of(work),
        metrics=work.metrics is not None,
        **{WIRE_NAMES[name]: batch[name] for name in work.inputs},
    )
    return mine, theirs


@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work.method}-{work.metrics}")
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
    assert (mine.metrics is None) == work.method.endswith(NO_METRICS) == (work.metrics is None)
    assert all(math.isfinite(value) for value in (mine.metrics or {}).values())


@pytest.mark.parametrize(
    "work", [work for work in WORKS if work.metrics == "same"], ids=lambda work: work.method
)
def test_the_same_metrics_are_those_of_the_kernels(
    local: cw.Client, batch: dict[str, Any], work: Work
) -> None:
    mine, theirs = answers(local, batch, work)
    found = {name: float(value) for name, value in mine.metrics.items()}
    assert found.keys() == theirs.metrics.keys()
    exact = {name for name in found if EXACT.fullmatch(name)}
    assert {name: found[name] for name in exact} == {name: theirs.metrics[name] for name in exact}
    rounded = pytest.approx(theirs.metrics, rel=ROUNDING["rtol"], abs=ROUNDING["atol"])
    assert found == rounded


def test_the_batch_reaches_both_sides_of_the_bounds(
    local: cw.Client, batch: dict[str, Any]
) -> None:
    found = {
        work.method: answers(local, batch, work)[1] for work in WORKS if work.metrics == "same"
    }
    tokens = batch["mask"].sum()
    assert 0 < found["token_tis+3_rules"].keep_mask.sum() < tokens
    assert 0 < (found["reinforce_pro"].weights != 0).sum() < tokens
    assert (found["token_tis"].weights == 2).any()
    for name in ("ppo_clip", "gspo"):
        assert 0 < found[name].metrics["loss/clip_fraction"] < 1
    assert found["ppo_clip"].metrics["loss/dual_clip_fraction"] > 0
    sides = {
        f"{rule}/{side}_fraction"
        for rule in ("token_ratio", "mean_ratio", "prefix_mean_ratio", "max_k3")
        for side in ("high", "low")
    } - {"max_k3/low_fraction"}
    metrics = found["token_tis+3_rules"].metrics | found["reinforce_pro"].metrics
    assert all(0 < metrics[f"rules/{side}"] < 1 for side in sides)
