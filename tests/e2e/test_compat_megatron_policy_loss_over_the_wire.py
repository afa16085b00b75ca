"""The whole policy loss of slime and miles by its name, reduced as they do, against their answers."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, goldens, read
from goldens import GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import miles, slime  # noqa: E402

# The dialects warn about many settings of the goldens, and of rules that drop most tokens.
pytestmark = [
    pytest.mark.usefixtures("compat_client"),
    pytest.mark.filterwarnings("ignore:method.block"),
    pytest.mark.filterwarnings("ignore:rule"),
    pytest.mark.filterwarnings("ignore:There are no old_log_probs"),
]
HOMES = {
    "slime": "slime.backends.megatron_utils.loss",
    "miles": "miles.backends.training_utils.loss",
}
# The trainers' arguments, which exist whether or not a user sets them.
ARGUMENTS = {
    **{"advantage_estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": None, "eps_clip_c": None},
    **{"use_rollout_logprobs": False, "calculate_per_token_loss": False, "use_tis": False},
    **{"tis_clip": 2.0, "tis_clip_low": 0, "custom_tis_function_path": None},
    **{"get_mismatch_metrics": False, "use_opsm": False, "opsm_delta": 1e-4},
    **{"use_kl_loss": False, "kl_loss_coef": 0.0, "kl_loss_type": "k1", "use_unbiased_kl": False},
    **{"entropy_coef": 0.0, "kl_coef": 0.0, "custom_pg_loss_reducer_function_path": None},
}
LENGTHS = ("unconcat_tokens", "total_lengths", "response_lengths")


def has_loss(golden: dict[str, Any]) -> bool:
    return answers(golden) and "loss" in golden["expect"]


NAMES = [name for system in HOMES for name in goldens(system, has_loss)]


@pytest.fixture(autouse=True)
def trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules in place of the trainers' own: the logits are the samples' log-probs."""
    for system, path in HOMES.items():
        module: Any = ModuleType(path)
        module.get_rollout_top_p_logprob_kwargs = lambda args, batch: {}
        module.get_log_probs_and_entropy = found_by(system)
        parts = path.split(".")
        for end in range(1, len(parts)):
            package = ".".join(parts[:end])
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setitem(sys.modules, path, module)


def found_by(system: str) -> Any:
    def find(logits: Any, *, with_entropy: bool, **_: Any) -> Any:
        found = {"log_probs": list(logits)}
        if with_entropy:
            found["entropy"] = [0.5 + 0 * row for row in logits]
        return (None, found) if system == "slime" else found

    return find


def arguments(params: dict[str, Any], **changes: Any) -> SimpleNamespace:
    given = {**ARGUMENTS, **params, **changes}
    if given["eps_clip_high"] is None:
        given["eps_clip_high"] = given["eps_clip"]
    return SimpleNamespace(**given)


def batch_of(inputs: Any, divisors: Any) -> dict[str, Any]:
    lists = {
        "log_probs": inputs.old,
        "rollout_log_probs": inputs.rollout,
        "ref_log_probs": inputs.ref,
        "advantages": inputs.advantages,
        "loss_masks": inputs.mask,
    }
    return {
        **{name: list(rows) for name, rows in lists.items() if rows is not None},
        **dict.fromkeys(LENGTHS),
        "rollout_mask_sums": divisors,
    }


def function_of(system: str) -> Any:
    return (slime if system == "slime" else miles).policy_loss_function


@pytest.mark.parametrize("name", NAMES)
def test_policy_loss_function(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, system = golden["params"], read(golden), golden["dialect"]
    tokens = inputs.mask.sum(1).clamp(min=1)
    divisors = torch.tensor(params.get("rollout_mask_sums", tokens.tolist())).float()
    by_token = bool(params.get("calculate_per_token_loss"))
    count = tokens.sum() if by_token else params.get("step_global_batch_size", len(tokens))

    def reduced(values: Any) -> Any:
        rows = (values.reshape(inputs.mask.shape) * inputs.mask).sum(1)
        return rows.sum() if by_token else (rows / divisors.clamp(min=1)).sum()

    facts = ("rollout_mask_sums", "step_global_batch_size")
    args = arguments({one: value for one, value in params.items() if one not in facts})
    loss, log = function_of(system)(args, batch_of(inputs, divisors), inputs.current, reduced)
    check_loss(loss / count, inputs, golden["expect"])
    expected = golden["expect"]["metrics"]
    missing = expected.keys() - log.keys()
    assert all(one.startswith("mis_") for one in missing), missing
    assert log.keys() - expected.keys() <= {"entropy_loss"}
    for metric in expected.keys() & log.keys():
        near = pytest.approx(float(expected[metric]), rel=2e-5, abs=2e-6)
        assert float(log[metric]) / float(count) == near, metric


def samples(**changes: Any) -> dict[str, Any]:
    rows = [torch.tensor([-1.0, -2.0]), torch.tensor([-0.5])]
    given = {
        "log_probs": rows,
        "rollout_log_probs": rows,
        "advantages": [torch.ones(2), -torch.ones(1)],
        "loss_masks": [torch.ones(2), torch.ones(1)],
        **dict.fromkeys(LENGTHS),
        **changes,
    }
    return {name: one for name, one in given.items() if name in LENGTHS or one is not None}


def logits() -> list[Any]:
    return [one.clone().requires_grad_() for one in samples()["log_probs"]]


@pytest.mark.parametrize("system", HOMES)
def test_the_entropy_is_the_trainers(system: str) -> None:
    current = logits()
    loss, log = function_of(system)(
        arguments({}, entropy_coef=0.1), samples(), current, lambda values: values.sum()
    )
    assert log["entropy_loss"].item() == pytest.approx(1.5)
    assert loss.item() == pytest.approx(log["pg_loss"].item() - 0.15)
    assert not any(one.requires_grad for one in log.values())


@pytest.mark.parametrize("system", HOMES)
def test_parts_of_samples_are_refused(system: str) -> None:
    given = samples(loss_masks=[torch.ones(4), torch.ones(2)])
    with pytest.raises(ValueError, match=f"compat.{system}.policy_loss_function needs whole"):
        function_of(system)(arguments({}), given, logits(), torch.sum)


@pytest.mark.parametrize("system", HOMES)
def test_settings_are_refused_by_name(system: str) -> None:
    wrong: dict[str, Any] = {
        "eps_clip_c": 0.5,
        "kl_loss_type": "k4",
        "advantage_estimator": "trpo",
        "custom_tis_function_path": "mine.function",
        "custom_pg_loss_reducer_function_path": "mine.reducer",
    }
    for name, value in wrong.items():
        args = arguments({}, **{"use_tis": True, "use_kl_loss": True, name: value})
        given = samples(ref_log_probs=samples()["log_probs"])
        with pytest.raises(cw.InvalidRequestError) as caught:
            function_of(system)(args, given, logits(), torch.sum)
        assert any(name in v.field for v in caught.value.violations), name


def test_missing_log_probs() -> None:
    args = arguments({}, skip_actor_forward_only=False)
    with pytest.raises(ValueError, match=r"^the batch has no log_probs of the old policy"):
        miles.policy_loss_function(args, samples(log_probs=None), logits(), torch.sum)
    args.use_rollout_logprobs = True
    for system in HOMES:
        with pytest.raises(ValueError, match=r"^--use-rollout-logprobs needs rollout_log_probs"):
            function_of(system)(args, samples(rollout_log_probs=None), logits(), torch.sum)
    args = arguments({}, use_tis=True)
    for system in HOMES:
        with pytest.raises(cw.InvalidRequestError, match="rollout_log_probs"):
            function_of(system)(args, samples(rollout_log_probs=None), logits(), torch.sum)
