"""Group baselines: the answers of other systems' own functions, and over ranks."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from counterweight_rl.distributed import Step
from server_process import REPOSITORY

GOLDEN = REPOSITORY / "tests/golden/groups"
Case = dict[str, Any]


def spelled(**settings: Any) -> cw.GroupBaseline:
    """Settings without a name: rejected rows vote."""
    return cw.GroupBaseline(**{"voters": "all", **settings})


def verl(case: Case) -> cw.GroupBaseline | str | None:
    function = case["function"].removeprefix("compute_").removesuffix("_outcome_advantage")
    by_std = case["arguments"].get("norm_adv_by_std_in_grpo", True)
    if function in {"opo", "grpo_passk", "gpg"}:
        return None
    return f"verl.{function}" if by_std else "verl.grpo_without_std"


def skyrl(case: Case) -> cw.GroupBaseline | str | None:
    arguments = case["arguments"]
    if "maxrl" in case["function"] or arguments.get("advantage_batch_normalize"):
        return None
    if "rloo" in case["function"]:
        return "skyrl.rloo"
    return "skyrl.grpo" if arguments["grpo_norm_by_std"] else "skyrl.grpo_without_std"


def trl(case: Case) -> cw.GroupBaseline | str | None:
    if case["arguments"]["multi_objective_aggregation"] != "sum_then_normalize":
        return None
    return f"trl.{case['arguments']['scale_rewards']}"


def openrlhf(case: Case) -> cw.GroupBaseline | str | None:
    arguments = case["arguments"]
    if arguments.get("no_std_norm"):
        return None
    name = arguments["estimator"]
    if arguments["clip_range"] == [-10.0, 10.0]:
        return f"openrlhf.{name}"
    assert arguments["clip_range"] == [-1e9, 1e9]
    return {
        "rloo": spelled(estimator="rloo"),
        "dr_grpo": spelled(estimator="dr_grpo"),
        "group_norm": spelled(estimator="grpo", epsilon=1e-9),
        "reinforce_baseline": spelled(estimator="dr_grpo", whitening="population"),
    }[name]


def slime(case: Case) -> cw.GroupBaseline | str | None:
    arguments = case["arguments"]
    if not arguments["rewards_normalization"]:
        return None
    name = arguments["advantage_estimator"]
    if name == "reinforce_plus_plus_baseline":
        return f"slime.{name}"
    assert name in {"grpo", "gspo", "cispo"}
    if arguments["normalize_advantages"]:
        sizes = set(Counter(case["group_ids"]).values())
        return (
            spelled(estimator="grpo", epsilon=1e-6, whitening="sample") if len(sizes) == 1 else None
        )
    return "slime.grpo" if arguments["grpo_std_normalization"] else "slime.grpo_without_std"


def nemo_rl(case: Case) -> cw.GroupBaseline | str | None:
    arguments = case["arguments"]
    if case["function"].startswith("Reinforce"):
        return "nemo_rl.reinforce_plus_plus_baseline"
    leaves_out, divides = arguments["use_leave_one_out_baseline"], arguments["normalize_rewards"]
    if "valid_mask" in arguments:
        divided = {"std": "others" if leaves_out else "group", "epsilon": 1e-6} if divides else {}
        return cw.GroupBaseline(estimator="rloo" if leaves_out else "dr_grpo", **divided)
    return (
        "nemo_rl.grpo"
        + ("_leave_one_out" if leaves_out else "")
        + ("" if divides else "_without_std")
    )


SYSTEMS = {f.__name__: f for f in (verl, skyrl, trl, openrlhf, slime, nemo_rl)}


def cases() -> Iterator[Any]:
    for system, baseline_of in SYSTEMS.items():
        for i, case in enumerate(json.loads((GOLDEN / f"{system}.json").read_text())["cases"]):
            baseline = baseline_of(case)
            if baseline is not None and "error" not in case:
                yield pytest.param(case, baseline, id=f"{system}-{i}-{case['batch']}")


@pytest.fixture(scope="module")
def local(local_library: None) -> Iterator[cw.Client]:
    with cw.Client("local:") as client:
        yield client


def numbers(listed: list[Any]) -> np.ndarray[Any, Any]:
    return np.array([math.nan if each is None else float(each) for each in listed])


def ids_of(case: Case) -> Any:
    """The groups that a system makes: slices of one size, or those of equal ids."""
    arguments, ids = case["arguments"], np.array(case["group_ids"])
    size = arguments.get("num_generations") or arguments.get("n_samples_per_prompt")
    if size is None:
        return ids
    if size * arguments.get("rollout_batch_size", ids.size // size) != ids.size:
        return np.zeros_like(ids)  # slime's
    slices = np.arange(ids.size) // size
    # OpenRLHF sorts rows by their prompts first.
    return (
        slices[np.argsort(np.argsort(ids, kind="stable"))] if "estimator" in arguments else slices
    )


@pytest.mark.parametrize(("case", "baseline"), list(cases()))
def test_a_system_answers_the_same(local: cw.Client, case: Case, baseline: Any) -> None:
    kept = np.array(case["kept_tokens"])
    answer = local.group_advantages(
        numbers(case["rewards"]).astype(np.float32),
        ids_of(case),
        baseline,
        tokens=case["tokens"],
        kept_tokens=kept,
    )
    # Those in float64, where float32 has lost them.
    expected = numbers(case.get("advantages_float64", case["advantages"]))
    # Only TRL leaves a row without a reward out; elsewhere its group has no number.
    compared = (kept > 0) & np.isfinite(expected)
    np.testing.assert_allclose(
        answer.advantages[compared], expected[compared], rtol=2e-5, atol=2e-6
    )


def test_a_server_has_the_same_bytes(
    local_library: None, local: cw.Client, client: cw.Client
) -> None:
    for case in json.loads((GOLDEN / "trl.json").read_text())["cases"]:
        baseline = trl(case)
        if baseline is None:
            continue
        arguments = (numbers(case["rewards"]), ids_of(case), baseline)
        here = local.group_advantages(*arguments, kept_tokens=case["kept_tokens"])
        there = client.group_advantages(*arguments, kept_tokens=case["kept_tokens"])
        assert here.advantages.tobytes() == there.advantages.tobytes()
        assert here.baselines.tobytes() == there.baselines.tobytes()
        np.testing.assert_equal(here.metrics, there.metrics)
        assert here.warnings == there.warnings


def test_masks_count_their_rows_and_texts_are_ids(local: cw.Client) -> None:
    mask = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]], bool)
    keep = mask & ~np.array([[0] * 3, [1] * 3, [0] * 3, [0, 0, 1]], bool)
    baseline = cw.GroupBaseline(estimator="dr_grpo", voters="fully_kept_rows")
    by_masks = local.group_advantages(
        np.float32([1, 9, 3, 7]), ["b", "b", "b", "b"], baseline, tokens=mask, kept_tokens=keep
    )
    np.testing.assert_array_equal(by_masks.advantages, np.float32([-1, 0, 1, 5]))
    by_counts = local.group_advantages(
        [1, 9, 3, 7], [4, 4, 4, 4], baseline, tokens=[2, 3, 1, 3], kept_tokens=[2, 0, 1, 2]
    )
    assert by_masks.advantages.tobytes() == by_counts.advantages.tobytes()
    assert by_masks.metrics["voters_dropped"] == 2
    assert by_masks.metrics == by_counts.metrics


def test_torch_has_its_kind() -> None:
    torch = pytest.importorskip(
        "torch", reason="needs torch: .ci/setup torch, or make test TORCH=1"
    )
    with cw.Client("local:") as client:
        ids = torch.tensor([2, 2, 1])
        made = client.group_advantages(torch.tensor([1.0, 2.0, 5.0]), ids, "verl.rloo")
    assert made.advantages.tolist() == [-1.0, 1.0, 5.0]
    assert made.advantages.dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        (([1.0, math.inf], [0, 0], "verl.grpo"), ValueError, r"rewards\[1\] must not be infinite"),
        ((np.ones((2, 2)), [0, 0], "verl.grpo"), ValueError, r"rewards must be \[B\]"),
        (([1.0], [0.5], "verl.grpo"), TypeError, "group_ids must be a one-dimensional sequence"),
        (([1.0], [0], 3), TypeError, "baseline must be a GroupBaseline or the name"),
        (([1.0], [0], "verl.gpro"), cw.InvalidRequestError, "Did you mean 'verl.grpo'"),
        (([1.0], [0, 1], "verl.grpo"), cw.InvalidRequestError, "group_ids: has 2 rows, rewards 1"),
        (
            ([1.0], [0], cw.GroupBaseline(estimator="grpo")),
            cw.InvalidRequestError,
            "baseline.epsilon: is required",
        ),
    ],
)
def test_what_is_wrong_is_named(
    local: cw.Client, arguments: Any, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        local.group_advantages(*arguments)


def test_a_step_in_one_process(local: cw.Client) -> None:
    step = Step(local, "token_tis")
    arguments = (np.float32([100, 1, 3]), [7, 7, 7], cw.GroupBaseline(estimator="rloo"))
    made = step.group_advantages(*arguments, kept_tokens=[0, 1, 1])
    assert made.advantages.tolist() == [0.0, -2.0, 2.0]


def test_verls_estimators_leave_rejected_rows_out() -> None:
    torch = pytest.importorskip(
        "torch", reason="needs torch: .ci/setup torch, or make test TORCH=1"
    )
    from counterweight_rl import compat
    from counterweight_rl.compat._verl_advantages import ADV_ESTIMATORS

    rewards = torch.zeros(5, 3)
    rewards[:, -1] = torch.tensor([100.0, 1.0, 3.0, 7.0, 7.0])
    mask = torch.tensor([[0, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
    uids = np.array(["a", "a", "a", "b", "b"], dtype=object)
    with cw.Client("local:") as client:
        compat.use(client)
        try:
            made = {
                name: estimator(
                    token_level_rewards=rewards, response_mask=mask, index=uids, config=None
                )
                for name, estimator in ADV_ESTIMATORS.items()
            }
        finally:
            compat.use()
    with pytest.raises(ValueError, match="take adv_estimator=counterweight_grpo_without_std"):
        ADV_ESTIMATORS["grpo"](rewards, mask, uids, config={"norm_adv_by_std_in_grpo": False})
    advantages, returns = made["rloo"]
    assert advantages.tolist() == [[0, 0, 0], [-2, -2, 0], [2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert returns is advantages
    assert made["grpo_without_std"][0][:, 0].tolist() == [0, -1, 1, 0, 0]
    one = 1 / (math.sqrt(2) + 1e-6)
    assert made["grpo"][0][:, 0].tolist() == pytest.approx([0, -one, one, 0, 0], rel=1e-6)
    # Over tokens: -1 twice, 1 once, 0 three times; a row without a token stays 0.
    mean, std = -1 / 6, math.sqrt((2 * 25 / 36 + 49 / 36 + 3 / 36) / 5 + 1e-8)
    expected = [0, (-1 - mean) / std, (1 - mean) / std, -mean / std, 0]
    whitened = made["reinforce_plus_plus_baseline"][0][:, 0].tolist()
    assert whitened == pytest.approx(expected, rel=1e-6)
