"""The other systems' own functions, called as their trainers call them, against their answers.

Where a function is a part of a loss, the rest of that loss is written out here as the system has
it, and compared with the system's own loss and gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import counterweight as cw
import numpy as np
import pytest
from goldens import release_of
from test_golden_over_the_wire import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight import compat  # noqa: E402
from counterweight.compat import _releases, openrlhf, skyrl, trl, verl  # noqa: E402

# The dialects have much to say about settings that goldens are made of.
pytestmark = pytest.mark.filterwarnings("ignore:method.dialect")

CORRECTION_FIELDS = {
    "rollout_is",
    "rollout_is_threshold",
    "rollout_is_batch_normalize",
    "rollout_rs",
    "rollout_rs_threshold",
}


@pytest.fixture(autouse=True)
def service(client: cw.Client) -> Iterator[None]:
    compat.use(client)
    yield
    compat.use(None)


@pytest.fixture(autouse=True)
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden's release is the installed one."""
    callspec = getattr(request.node, "callspec", None)
    name = callspec.params.get("name") if callspec else None
    if name in GOLDENS:
        installed = release_of(GOLDENS[name])
        monkeypatch.setattr(_releases, "_installed", lambda _: installed or None)


@pytest.mark.parametrize(
    ("policy", "weights", "kept"), [("drop", [0, 1], [0, 1]), ("neutralize", [1, 1], [1, 1])]
)
def test_a_nan_follows_the_policy(
    client: cw.Client, policy: str, weights: list[float], kept: list[int]
) -> None:
    old, mask = torch.full((1, 2), -1.0), torch.ones(1, 2)
    arguments = (old, torch.tensor([[torch.nan, -1.0]]), mask)
    with pytest.raises(cw.InvalidRequestError):
        verl.compute_rollout_correction_and_rejection_mask(*arguments, "token")
    compat.use(client, non_finite=policy)
    holder, mask, _ = verl.compute_rollout_correction_and_rejection_mask(*arguments, "token")
    assert holder.batch["rollout_is_weights"].tolist() == [weights]
    assert mask.tolist() == [kept]
    skyrl_weights, metrics, mask = skyrl.compute_off_policy_correction(
        *arguments, {"tis_ratio_type": "token"}
    )
    assert skyrl_weights.tolist() == [weights]
    assert mask.tolist() == [kept]
    assert len(metrics) == 5


def goldens(system: str, condition: Callable[[dict[str, Any]], bool]) -> list[str]:
    names = [n for n, g in GOLDENS.items() if n.startswith(f"{system}/") and condition(g)]
    assert names
    return names


def answers(golden: dict[str, Any]) -> bool:
    return "error" not in golden["expect"]


def read(golden: dict[str, Any]) -> SimpleNamespace:
    """The inputs as tensors; what is not there is None."""
    names = ("rollout", "old", "current", "ref")
    inputs = {
        name: torch.from_numpy(array(rows).astype(np.float32))
        for name, rows in golden["inputs"].items()
    }
    tensors = {name: inputs.get(f"{name}_log_probs") for name in names}
    if tensors["current"] is not None:
        tensors["current"].requires_grad_()
    mask = inputs["response_mask"].long()
    return SimpleNamespace(**tensors, mask=mask, advantages=inputs.get("advantages"))


def check(actual: torch.Tensor, expected: list[Any], mask: torch.Tensor, *, atol: float) -> None:
    kept = mask.numpy() == 1
    actual, wanted = actual.detach().expand(mask.shape).numpy()[kept], array(expected)[kept]
    np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=atol)


def check_loss(loss: torch.Tensor, inputs: SimpleNamespace, expect: dict[str, Any]) -> None:
    np.testing.assert_allclose(loss.item(), float(expect["loss"]), rtol=2e-5, atol=1e-7)
    loss.backward()
    if "grad" in expect:
        largest = np.abs(array(expect["grad"])).max(initial=0.0)
        check(inputs.current.grad, expect["grad"], inputs.mask, atol=1e-6 * largest)
        assert (inputs.current.grad[inputs.mask == 0] == 0).all()


def check_metrics(
    actual: dict[str, float], expect: dict[str, Any], *, but: tuple[str, ...] = ()
) -> None:
    for name, value in expect.get("metrics", {}).items():
        if name not in but:
            np.testing.assert_allclose(
                actual[name], float(value), rtol=2e-5, atol=2e-6, err_msg=name
            )


# verl.


def is_verl_correction(golden: dict[str, Any]) -> bool:
    return golden["params"].keys() <= CORRECTION_FIELDS


@pytest.mark.parametrize(
    "name", goldens("verl", lambda golden: is_verl_correction(golden) and answers(golden))
)
def test_verl_correction(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    weights, mask, metrics = verl.compute_rollout_correction_and_rejection_mask(
        inputs.old, inputs.rollout, inputs.mask, **golden["params"]
    )
    assert mask.dtype == inputs.mask.dtype
    if "mask" in expect:
        np.testing.assert_array_equal(mask.numpy(), array(expect["mask"]))
    if "weights" in expect:
        check(weights.batch["rollout_is_weights"], expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)
    assert all(name.startswith("rollout_corr/") for name in metrics)


@pytest.mark.parametrize(
    "name", goldens("verl", lambda golden: is_verl_correction(golden) and not answers(golden))
)
def test_verl_correction_error(name: str) -> None:
    inputs = read(GOLDENS[name])
    with pytest.raises(cw.InvalidRequestError):
        verl.compute_rollout_correction_and_rejection_mask(
            inputs.old, inputs.rollout, inputs.mask, **GOLDENS[name]["params"]
        )


def has_plain_verl_loss(golden: dict[str, Any]) -> bool:
    # verl adds the KL term outside of its policy losses.
    return "loss" in golden["expect"] and not golden["params"]["policy_loss"].get("use_kl_loss")


def verl_config(params: dict[str, Any]) -> dict[str, Any]:
    """The block's flat policy_loss as verl's ActorConfig has it, in two levels."""
    policy_loss = params.get("policy_loss", {})
    correction = {k: v for k, v in params.items() if k not in ("policy_loss", "bypass_mode")}
    return {**policy_loss, "policy_loss": {**policy_loss, "rollout_correction": correction}}


@pytest.mark.parametrize("name", goldens("verl", has_plain_verl_loss))
def test_verl_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    bypass = params.get("bypass_mode", False)
    mode = params["policy_loss"].get("loss_mode", "bypass_mode" if bypass else "vanilla")
    aggregation = params["policy_loss"].get("loss_agg_mode", "token-mean")
    weights, mask, metrics = None, inputs.mask, {}
    if mode != "bypass_mode":
        # As verl's trainer does: the correction first, once; then its weights and mask.
        numerator = inputs.current if bypass else inputs.old
        correction = {k: v for k, v in params.items() if k in CORRECTION_FIELDS}
        holder, mask, metrics = verl.compute_rollout_correction_and_rejection_mask(
            numerator.detach(), inputs.rollout, mask, **correction
        )
        weights = holder.batch["rollout_is_weights"] if holder is not None else None
    compute = (
        verl.compute_policy_loss_reinforce if mode == "reinforce" else verl.get_policy_loss_fn(mode)
    )
    arguments = (
        inputs.rollout if bypass else inputs.old,
        inputs.current,
        inputs.advantages,
        mask,
        aggregation,
        verl_config(params),
        weights,
    )
    if weights is not None and mode in ("clip_cov", "kl_cov", "geo_mean", "dro"):
        with pytest.raises(cw.InvalidRequestError, match="rollout_is_weights"):
            compute(*arguments)
        return
    loss, loss_metrics = compute(*arguments)
    check_loss(loss, inputs, expect)
    # A token whose weight is 0 counts as not clipped: README.
    zeroed = weights is not None and bool((weights[mask == 1] == 0).any())
    but = ("actor/pg_clipfrac", "actor/pg_clipfrac_lower") if zeroed else ()
    check_metrics({**metrics, **loss_metrics}, expect, but=but)


# SkyRL.


def is_skyrl_correction(golden: dict[str, Any]) -> bool:
    # use_tis stands beside off_policy_correction, which is all that SkyRL's function gets.
    no_loss = answers(golden) and "loss" not in golden["expect"]
    return no_loss and "use_tis" not in golden["params"]


@pytest.mark.parametrize("name", goldens("skyrl", is_skyrl_correction))
def test_skyrl_correction(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    loss, mask, metrics = skyrl.apply_off_policy_correction(
        torch.ones_like(inputs.old),
        inputs.old,
        inputs.rollout,
        inputs.mask,
        golden["params"].get("off_policy_correction", {}),
    )
    np.testing.assert_array_equal(mask.numpy(), array(expect["mask"]))
    if "weights" in expect:
        check(loss, expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)
    assert metrics.keys() == expect["metrics"].keys()


def skyrl_scale(mask: torch.Tensor, reduction: str) -> torch.Tensor:
    """What SkyRL multiplies advantages by, before any rejection."""
    if reduction == "token_mean":
        return 1 / mask.sum().clamp(min=1)
    assert reduction == "sequence_mean"
    return 1 / (len(mask) * mask.sum(dim=1, keepdim=True).clamp(min=1))


def is_skyrl_regular(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    return (
        "loss" in golden["expect"]
        and params.get("policy_loss_type", "regular") == "regular"
        and bool(params.get("off_policy_correction"))
        and params.get("loss_reduction", "token_mean") in ("token_mean", "sequence_mean")
        and not params.get("use_kl_loss")
    )


@pytest.mark.parametrize("name", goldens("skyrl", is_skyrl_regular))
def test_skyrl_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    scale = skyrl_scale(inputs.mask, params.get("loss_reduction", "token_mean"))
    advantages = inputs.advantages * scale
    kept = inputs.mask == 1
    log_ratio = torch.where(kept, inputs.current - inputs.old, 0.0)
    ratio = log_ratio.clamp(-20, 20).exp()
    low, high = params.get("eps_clip_low", 0.2), params.get("eps_clip_high", 0.2)
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    loss, mask, metrics = skyrl.apply_off_policy_correction(
        loss, inputs.old, inputs.rollout, inputs.mask, params["off_policy_correction"]
    )
    check_loss((loss * mask).sum(), inputs, expect)
    check_metrics(metrics, expect, but=("clip_ratio",))
    assert {"clip_ratio", *metrics} == expect["metrics"].keys()


SKYRL_CONFIGS: dict[str, dict[str, Any]] = {
    "token": {"tis_ratio_type": "token"},
    "sequence": {"tis_ratio_type": "sequence"},
    "geometric": {"sequence_mask_metric": "geometric"},
    "product": {"sequence_mask_metric": "product"},
    "outliers": {"outlier_token_is_threshold_high": 100.0},
    "all": {
        "tis_ratio_type": "sequence",
        "sequence_mask_metric": "product",
        "outlier_token_is_threshold_low": 1e-4,
        "token_mask_is_threshold_low": 0.5,
        "token_mask_is_threshold_high": 2.0,
    },
}


@pytest.mark.parametrize("name", SKYRL_CONFIGS)
def test_skyrl_metrics_of_a_fully_masked_batch(name: str) -> None:
    """SkyRL has the same names then, in the same order: its ranks reduce them one by one."""
    config = SKYRL_CONFIGS[name]
    old, rollout = torch.full((2, 3), -1.0), torch.full((2, 3), -1.5)
    arguments = (torch.ones(2, 3), old, rollout)
    mask = torch.zeros(2, 3)
    _, _, some = skyrl.apply_off_policy_correction(*arguments, torch.ones(2, 3), config)
    _, kept, none = skyrl.apply_off_policy_correction(*arguments, mask, config)
    assert list(none) == list(some)
    # Every ratio counts times a mask of 0, and the ratio of an empty row is 1, within all bounds.
    assert set(none.values()) == {0.0}
    assert not kept.any()


# TRL.

RATIO_FIELDS = {
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
}


def trl_ratio(params: dict[str, Any], inputs: SimpleNamespace) -> tuple[Any, dict[str, float]]:
    fields = {name: value for name, value in params.items() if name in RATIO_FIELDS}
    return trl.vllm_importance_sampling_ratio(inputs.old, inputs.rollout, inputs.mask, **fields)


def trl_advantages(inputs: SimpleNamespace) -> torch.Tensor:
    """[B, 1] as TRL has them, where the rows are of one number."""
    column = inputs.advantages[:, :1]
    same = bool((inputs.advantages == column).all())
    return column if same else inputs.advantages


def is_trl_ratio(golden: dict[str, Any]) -> bool:
    return (
        answers(golden)
        and "weights" in golden["expect"]
        and "current_log_probs" not in golden["inputs"]
        and golden["params"].keys() <= RATIO_FIELDS
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_ratio))
def test_trl_ratio(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    ratio, metrics = trl_ratio(golden["params"], inputs)
    mode = golden["params"].get("vllm_importance_sampling_mode", "sequence_mask")
    assert ratio.shape[1] == (1 if mode.startswith("sequence") else inputs.mask.shape[1])
    check(ratio, expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)


def is_trl_opsm(golden: dict[str, Any]) -> bool:
    # The factored form of pull request 4891 is no call of get_off_policy_mask.
    geometric = "sequence_geometric_mean_mask"
    return (
        answers(golden)
        and "mask" in golden["expect"]
        and "loss" not in golden["expect"]
        and golden["params"].get("vllm_importance_sampling_mode") != geometric
        and {"rollout_log_probs", "old_log_probs"} & golden["inputs"].keys() != set()
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_opsm))
def test_trl_off_policy_mask(name: str) -> None:
    golden = GOLDENS[name]
    inputs = read(golden)
    advantages = trl_advantages(inputs)
    keep = trl.get_off_policy_mask(
        advantages=advantages,
        per_token_logps=inputs.current,
        sampling_per_token_logps=inputs.old if inputs.rollout is None else inputs.rollout,
        mask=inputs.mask,
        off_policy_threshold=golden["params"]["off_policy_mask_threshold"],
    )
    assert keep.shape == advantages.shape
    assert keep.dtype == inputs.mask.dtype
    np.testing.assert_array_equal((keep * inputs.mask).numpy(), array(golden["expect"]["mask"]))


def is_trl_dapo(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    return (
        "loss" in golden["expect"]
        and params.get("loss_type", "dapo") == "dapo"
        and params.get("importance_sampling_level", "token") == "token"
        and not params.keys() & {"delta", "num_items_in_batch", "steps_per_generation"}
        and {"rollout_log_probs", "old_log_probs"} <= golden["inputs"].keys()
        and params.get("vllm_importance_sampling_correction", True)
        # Advantages of one per row, without which there is no (B, 1).
        and not (
            params.get("vllm_importance_sampling_mode") == "sequence_geometric_mean_mask"
            and "off_policy_mask_threshold" in params
        )
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_dapo))
def test_trl_loss(name: str) -> None:
    """TRL's default loss around its two functions."""
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    kept = inputs.mask == 1
    advantages = trl_advantages(inputs)

    def masked(difference: torch.Tensor) -> torch.Tensor:
        return torch.where(kept, difference, 0.0)

    epsilon = params.get("epsilon", 0.2)
    epsilon_high = params.get("epsilon_high")
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    ratio = masked(inputs.current - inputs.old).exp()
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, high) * advantages)
    if params.get("off_policy_mask_threshold") is not None:
        loss = loss * trl.get_off_policy_mask(
            advantages,
            inputs.current,
            inputs.rollout,
            inputs.mask,
            params["off_policy_mask_threshold"],
        )
    weights, metrics = trl_ratio(params, inputs)
    loss = loss * weights
    if params.get("beta"):
        difference = masked(inputs.ref - inputs.current)
        loss = loss + params["beta"] * (difference.exp() - difference - 1)
    check_loss((loss * inputs.mask).sum() / inputs.mask.sum().clamp(min=1), inputs, expect)
    sampling = {k: v for k, v in expect.get("metrics", {}).items() if k.startswith("sampling/")}
    check_metrics(metrics, {"metrics": sampling})


# OpenRLHF.


def openrlhf_loss(params: dict[str, Any], inputs: SimpleNamespace) -> tuple[Any, ...]:
    call = ("dp_size", "batch_num_tokens", "global_batch_size")
    settings = {name: value for name, value in params.items() if name not in call}
    # OpenRLHF's own actor makes the class's argument of it.
    mode = settings.pop("loss_agg_mode", None)
    if mode is not None:
        settings["token_level_loss"] = mode == "token-mean"
    eps_clip = settings.pop("eps_clip", 0.2)
    low, high = settings.pop("eps_clip_low_high", None) or (eps_clip, eps_clip)
    if settings.get("enable_vllm_is_correction"):
        # The default of OpenRLHF's command line, which its class does not have.
        settings.setdefault("vllm_is_truncated_threshold", [0.5, 5.0])
    module = openrlhf.PolicyLoss(clip_eps_low=low, clip_eps_high=high, **settings)
    return module(
        inputs.current,
        inputs.old,
        inputs.advantages,
        action_mask=inputs.mask,
        rollout_log_probs=inputs.rollout,
        **{name: value for name, value in params.items() if name in call},
    )


def without_kl(golden: dict[str, Any]) -> bool:
    # OpenRLHF adds the KL term outside of PolicyLoss.
    of_kl = {"use_kl_loss", "kl_estimator", "init_kl_coef", "unbiased_gradient"}
    return not of_kl & golden["params"].keys()


@pytest.mark.parametrize("name", goldens("openrlhf", lambda g: answers(g) and without_kl(g)))
def test_openrlhf_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    loss, *metrics = openrlhf_loss(golden["params"], inputs)
    check_loss(loss, inputs, expect)
    names = ["ppo_clip_ratio", "ppo_kl", "vllm_kl"]
    if release_of(golden) == "0.11.2":
        names.append("is_filter_ratio")
    told = dict(zip(names, metrics, strict=True))
    check_metrics({k: v.item() for k, v in told.items() if v is not None}, expect)


def is_openrlhf_error(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    # The command line's, of which the class knows nothing: None is its default here.
    of_command_line = "loss_agg_mode" in params or params.get("is_correction_threshold", ()) is None
    return not answers(golden) and without_kl(golden) and not of_command_line


@pytest.mark.parametrize("name", goldens("openrlhf", is_openrlhf_error))
def test_openrlhf_error(name: str) -> None:
    golden = GOLDENS[name]
    # A TypeError is of arguments that the class does not have, or not together.
    with pytest.raises((cw.InvalidRequestError, TypeError)):
        openrlhf_loss(golden["params"], read(golden))
