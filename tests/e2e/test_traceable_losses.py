"""``hooks.tinker.traceable`` against the service, on random batches.

Both compute a token's loss in float32, from the same float32 log ratios, and differ by rounding
alone. With u = 2^-24, and a log ratio l of at most 2 nats:

* The log ratio has one rounding, which changes exp(l) by at most 2 u of itself; it is the same in
  both, but is counted for each.
* The service's exp is within 2 units in the last place, 4 u (tests/kernels/math_test.cc); torch's
  is within 1, 2 u.
* A loss has at most two of these, of weight and ratio, and at most four products: 2 (2 + 4) + 4 =
  16 u for the service and 12 u for torch, together SLACK.
* The service's sums are exact but for the last rounding; torch adds T float32 numbers, with at most
  T u of the sum of their sizes.
* Clips and masks judge the same number but for its rounding, so no ratio may be that near to a
  bound; the test looks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
from counterweight_rl import compat

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.hooks import tinker  # noqa: E402

UNIT = 2.0**-24
SLACK = 28 * UNIT
LARGEST_RATIO = 2.0  # nats
LENGTHS = (1, 33, 64, 200, 7)

LOSSES: dict[str, dict[str, Any]] = {
    "importance_sampling": {},
    "ppo_clip": {"clip_low": 0.2, "clip_high": 0.28},
    "ppo_clip, dual": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 1.5},
    "ppo_clip, cap": {"clip_low": 0.2, "clip_high": 0.28, "ratio_cap": 1.6},
    "ppo_clip, clamp": {"clip_low": 0.2, "clip_high": 0.28, "log_ratio_clamp": 0.25},
    "cispo": {"clip_low": 0.9, "clip_high": 0.3},
    "reinforce": {},
}
WEIGHTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "unbounded": {"bound": "none"},
    "truncate": {"bound": "truncate", "lower": 0.6, "upper": 1.4},
    "truncate above, clamped": {"bound": "truncate", "upper": 1.4, "token_clamp": 0.75},
    "mask": {"bound": "mask", "lower": 0.7, "upper": 1.4},
    "mask below": {"bound": "mask", "lower": 0.7},
}


@pytest.fixture(autouse=True)
def service(client: cw.Client) -> Any:
    compat.use(client)
    yield
    compat.use(None)


class Data:
    """Data of one batch, as ``policy_loss`` and a traced loss take them."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(size: int) -> Any:
            return torch.randn(size, generator=generator).clamp(-3, 3)

        self.current, self.inputs = [], []
        for size in LENGTHS:
            old = -0.05 - 3 * torch.rand(size, generator=generator)
            self.current.append((old + 0.2 * normal(size)).clamp(max=0).requires_grad_())
            mask = (torch.rand(size, generator=generator) < 0.8).float()
            self.inputs.append(
                {
                    "logprobs": (old + 0.3 * normal(size)).clamp(max=0),
                    "old_logprobs": old,
                    "advantages": normal(size) * (torch.rand(size, generator=generator) < 0.9),
                    "mask": mask,
                }
            )

    def datums(self, with_old: bool) -> list[Any]:
        made = []
        for one in self.inputs:
            given = {n: SimpleNamespace(to_torch=lambda v=v: v) for n, v in one.items()}
            if not with_old:
                del given["old_logprobs"]
            made.append(SimpleNamespace(loss_fn_inputs=given))
        return made

    def traced(self, function: Any, with_old: bool) -> tuple[Any, list[Any], dict[str, float]]:
        """Returns loss, gradients and metrics as Tinker's client adds them up."""
        losses, sums = [], {}
        leaves = [one.detach().clone().requires_grad_() for one in self.current]
        for leaf, one in zip(leaves, self.inputs, strict=True):
            old = [one["old_logprobs"]] if with_old else []
            loss, metrics = function(leaf, one["logprobs"], *old, one["advantages"], one["mask"])
            losses.append(loss)
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        total = torch.stack(losses).double().sum()
        total.backward()
        return total.item(), [leaf.grad for leaf in leaves], sums


def check(data: Data, method: Any, function: Any, with_old: bool, bounds: list[float]) -> None:
    value, gradients, sums = data.traced(function, with_old)
    for one in data.current:
        one.grad = None
    loss, metrics = tinker.policy_loss(method)(data.datums(with_old), data.current)
    loss.backward()
    size = tokens = 0.0
    for current, own, one in zip(data.current, gradients, data.inputs, strict=True):
        old = one["old_logprobs"] if with_old else current.detach()
        for ratio in (
            current.detach() - old,
            current.detach() - one["logprobs"],
            old - one["logprobs"],
        ):
            counts = ratio[one["mask"] == 1]
            assert counts.abs().le(LARGEST_RATIO).all()
            for bound in bounds:
                assert ((counts.exp() / bound - 1).abs() > SLACK).all(), "choose another seed"
        # |d loss / d log-prob| and |loss| are at most this: weights and ratios are below e^2.
        parts = one["advantages"].abs() * one["mask"]
        torch.testing.assert_close(own, current.grad, rtol=SLACK, atol=0.0)
        size += float((parts * (1 + current.detach().abs())).double().sum())
        tokens += float(one["mask"].sum())
    largest = float(torch.tensor(LARGEST_RATIO).exp()) ** 2
    bound = (SLACK + max(LENGTHS) * UNIT) * largest * size
    assert value == pytest.approx(loss.item(), rel=0.0, abs=bound)
    assert sums["custom/counterweight_tokens:sum"] == tokens
    for name in ("kl", "k3"):
        mean = sums[f"custom/counterweight_{name}:sum"] / tokens
        assert mean == pytest.approx(metrics[f"counterweight/{name}"], rel=2e-5, abs=2e-6)


@pytest.mark.parametrize("with_old", [False, True], ids=["one_step", "several_steps"])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_the_services_but_for_rounding(loss: str, weight: str, with_old: bool) -> None:
    source = "current_old" if with_old else "current_rollout"
    bounded = WEIGHTS[weight]
    method = cw.CorrectionConfig(
        importance_weight=None
        if bounded is None
        else cw.ImportanceWeight(
            **{"ratio_source": cw.RatioSource.OLD_ROLLOUT, "level": cw.Level.TOKEN, **bounded}
        ),
        policy_loss=cw.PolicyLoss(
            surrogate=cw.Surrogate(loss.partition(",")[0]),
            aggregation=cw.LossAggregation.TOKEN_SUM,
            denominator=cw.LossDenominator.ORIGINAL,
            ratio_source=cw.RatioSource(source),
            allow_double_correction=True,
            **LOSSES[loss],
        ),
    )
    function = tinker.traceable(method, old_logprobs=with_old)
    bounds = [0.6, 0.7, 0.1, 0.8, 1.28, 1.3, 1.4, 1.5, 1.6]
    for seed in range(3):
        check(Data(seed), method, function, with_old, bounds)


PRESETS = [
    ("token_tis", {}),
    ("token_tis", {"upper": 1.25}),
    ("icepop", {"lower": 0.75}),
    ("bypass_icepop", {"lower": 0.75, "upper": 1.25}),
    ("trl_token_truncate", {"lower": 0.75, "upper": 1.25}),
    ("trl_token_mask", {"lower": 0.75, "upper": 1.25}),
    ("skyrl_token_tis", {"upper": 1.25}),
    ("openrlhf_tis", {"lower": 0.75, "upper": 1.25}),
    ("openrlhf_icepop", {"lower": 0.75, "upper": 1.25}),
]


@pytest.mark.parametrize(("name", "parameters"), PRESETS, ids=lambda given: str(given))
def test_a_preset_is_the_servers(name: str, parameters: dict[str, float]) -> None:
    method = {"preset": name, **parameters, "policy_loss": {"surrogate": "reinforce"}}
    function = tinker.traceable(method)
    for seed in range(3):
        check(Data(seed), method, function, False, [0.5, 0.75, 1.25, 2.0, 5.0])


def test_without_a_method_it_is_tinkers_importance_sampling() -> None:
    check(Data(0), None, tinker.traceable(), False, [])


def test_dro() -> None:
    """Its gradient, beta l - A, may cancel: the bound is of the sizes of both terms."""
    beta = 0.3
    method = cw.CorrectionConfig(
        policy_loss=cw.PolicyLoss(
            surrogate=cw.Surrogate.DRO,
            aggregation=cw.LossAggregation.TOKEN_SUM,
            denominator=cw.LossDenominator.ORIGINAL,
            ratio_source=cw.RatioSource.CURRENT_ROLLOUT,
            beta=beta,
        )
    )
    data = Data(0)
    value, gradients, _ = data.traced(tinker.traceable(method), False)
    loss, _ = tinker.policy_loss(method)(data.datums(False), data.current)
    loss.backward()
    size = 0.0
    for current, own, one in zip(data.current, gradients, data.inputs, strict=True):
        now, ratio = current.detach(), (current.detach() - one["logprobs"]) * one["mask"]
        advantages = one["advantages"] * one["mask"]
        terms = advantages.abs() + beta * ratio.abs()
        assert ((own - current.grad).abs() <= SLACK * terms).all()
        size += float(((advantages * now).abs() + beta / 2 * ratio**2).double().sum())
    assert value == pytest.approx(loss.item(), rel=0.0, abs=(SLACK + max(LENGTHS) * UNIT) * size)


@pytest.mark.parametrize("old_logprobs", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_torch_traces_it(loss: str, old_logprobs: bool) -> None:
    surrogate = {"surrogate": loss.partition(",")[0], **LOSSES[loss]}
    function = tinker.traceable(
        {"preset": "icepop", "lower": 0.8, "upper": 1.3, "policy_loss": surrogate},
        old_logprobs=old_logprobs,
    )
    data = Data(1)
    expected = data.traced(function, old_logprobs)
    graph = torch.fx.symbolic_trace(function)
    assert not [node for node in graph.graph.nodes if node.op in ("get_attr", "call_module")]
    # Dynamo counts the compilations of all functions of one code.
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for traced in (graph, compiled):
        value, gradients, sums = data.traced(traced, old_logprobs)
        assert (value, sums) == (expected[0], expected[2])
        for one, other in zip(gradients, expected[1], strict=True):
            assert torch.equal(one, other)


def test_masked_positions_are_never_read() -> None:
    data = Data(2)
    function = tinker.traceable({"preset": "token_tis", "policy_loss": {"surrogate": "reinforce"}})
    expected = data.traced(function, False)
    for current, one in zip(data.current, data.inputs, strict=True):
        for tensor in (current.detach(), one["logprobs"], one["advantages"]):
            tensor[one["mask"] == 0] = float("nan")
    value, gradients, sums = data.traced(function, False)
    assert (value, sums) == (expected[0], expected[2])
    for one, other in zip(gradients, expected[1], strict=True):
        assert torch.equal(one, other)


GSPO = {"surrogate": "gspo", "clip_low": 0.1, "clip_high": 0.1}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("seq_tis", "cannot be traced: weights of level sequence need the whole sequence"),
        ("k3_rs", "cannot be traced: rejection rules need whole sequences"),
        (
            cw.Preset("token_tis", upper="calm:0.9:2"),
            "cannot be traced: a server knows the bound of a run's calm steps",
        ),
        (
            {"preset": "geo_rs_token_tis", "keep_upper": 1.5},
            "^geo_rs_token_tis cannot be traced: its keep_upper is no bound of a token's weight",
        ),
        (
            {"preset": "token_tis", "policy_loss": GSPO},
            "cannot be traced: of the surrogates only importance_sampling, ppo_clip, .*; got gspo",
        ),
        (
            cw.CorrectionConfig(kl_penalty=cw.KlPenalty(estimator="k3", coefficient=0.1)),
            "cannot be traced: a kl_penalty needs",
        ),
        (
            cw.CorrectionConfig(
                sequence_filter=cw.SequenceFilter(ratio_source="old_rollout", upper=2.0)
            ),
            "cannot be traced: a sequence_filter needs whole sequences",
        ),
        ({"dialect": "tinker", "loss_fn": "ppo"}, "the method must be a preset"),
        ("tokn_tis", "[Dd]id you mean 'token_tis'"),
        ({"preset": "token_tis", "upper": -1.0}, "upper"),
    ],
)
def test_what_needs_more_than_a_token_is_refused(method: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tinker.traceable(method)
