"""Requests and return values of SkyRL's functions, and calls that send none."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import KEEP, SKYRL_METRICS, answers, block, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Response

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl import compat  # noqa: E402
from counterweight_rl.compat import skyrl  # noqa: E402

RATIO = ["is_ratio_mean", "is_ratio_std", "is_ratio_max", "is_ratio_min"]
TIS = ["tis_token_clip_high_ratio"]
SEQUENCE_TIS = ["tis_seq_clip_high_ratio"]
SHARES = ("masked", "over_high", "under_low")
OUTLIERS = [f"outlier_seq_{share}_ratio" for share in SHARES]
GEOMETRIC = [f"geo_sequence_mask_{share}_ratio" for share in SHARES]
PRODUCT = [f"product_sequence_mask_{share}_ratio" for share in SHARES]
TOKENS = ["token_mask_ratio"]

OFF: list[dict[str, Any]] = [
    {},
    {"tis_ratio_type": None, "sequence_mask_metric": None},
    {"token_tis_ratio_clip_high": 2.0, "geo_mask_high": 1.01, "product_mask_low": 0.5},
    {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": None},
]


@pytest.fixture(autouse=True)
def skyrl_metrics(service: FakeServer) -> None:
    service.handler = answers(SKYRL_METRICS)


def test_correction(service: FakeServer) -> None:
    loss, old, rollout, mask = tensors(OLD * 5, OLD, ROLLOUT, MASK.astype(np.float32))
    loss.requires_grad_()
    config = SimpleNamespace(tis_ratio_type="token", token_tis_ratio_clip_high=2.0)
    corrected, kept, metrics = skyrl.apply_off_policy_correction(loss, old, rollout, mask, config)
    np.testing.assert_array_equal(corrected.detach().numpy(), OLD * 5 * WEIGHTS)
    corrected.sum().backward()
    np.testing.assert_array_equal(loss.grad.numpy(), WEIGHTS)
    assert kept.dtype == torch.float32
    np.testing.assert_array_equal(kept.numpy(), KEEP)
    assert metrics == {name: SKYRL_METRICS[name] for name in RATIO + TIS}
    assert block(service.requests[0]) == {
        "off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}
    }


def test_without_rollout_or_weights(service: FakeServer) -> None:
    loss, old, mask = tensors(OLD * 5, OLD, MASK)
    assert skyrl.apply_off_policy_correction(loss, old, None, mask, {}) == (loss, mask, {})
    assert service.requests == []
    service.handler = lambda request, _: Response(
        metrics=SKYRL_METRICS,
        tensors=[
            tensor_pb2.Tensor(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=KEEP.tobytes())
        ],
    )
    config = {"sequence_mask_metric": "product"}
    same, kept, _ = skyrl.apply_off_policy_correction(loss, old, old, mask, config)
    assert same is loss
    np.testing.assert_array_equal(kept.numpy(), KEEP)
    with pytest.raises(TypeError, match="cannot read a configuration out of a NoneType"):
        skyrl.apply_off_policy_correction(loss, old, old, mask, None)


@pytest.mark.parametrize("config", OFF, ids=str)
@pytest.mark.parametrize("make", [dict, lambda fields: SimpleNamespace(**fields)])
def test_with_nothing_switched_on_nothing_is_read_and_nothing_sent(
    service: FakeServer, config: dict[str, Any], make: Any
) -> None:
    loss, old, rollout, mask = tensors(OLD * 5, OLD, ROLLOUT, MASK)
    nan, weights = torch.full_like(old, torch.nan), torch.rand(OLD.shape)
    for old_given, rollout_given, mask_given in [
        (old, rollout, mask),
        (None, rollout, mask),
        (old, rollout, None),
        (nan, nan, mask),
        (old, rollout, weights),
    ]:
        given = (old_given, rollout_given, mask_given, make(config))
        same, same_mask, metrics = skyrl.apply_off_policy_correction(loss, *given)
        assert same is loss
        assert same_mask is mask_given
        assert metrics == {}
        none, metrics, same_mask = skyrl.compute_off_policy_correction(*given)
        assert none is None
        assert same_mask is mask_given
        assert metrics == {}
    assert service.requests == []


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"tis_ratio_type": "token"}, RATIO + TIS),
        ({"tis_ratio_type": "sequence"}, RATIO + SEQUENCE_TIS),
        ({"sequence_mask_metric": "geometric"}, RATIO + GEOMETRIC),
        ({"sequence_mask_metric": "product"}, RATIO + PRODUCT),
        ({"outlier_token_is_threshold_low": 0.1}, RATIO + OUTLIERS),
        ({"outlier_token_is_threshold_high": 9.0}, RATIO + OUTLIERS),
        (
            {
                "sequence_mask_metric": "product",
                "tis_ratio_type": "token",
                "token_mask_is_threshold_low": 0.5,
                "token_mask_is_threshold_high": 2.0,
                "outlier_token_is_threshold_low": 0.1,
                "outlier_token_is_threshold_high": 9.0,
            },
            RATIO + OUTLIERS + TOKENS + TIS + PRODUCT,
        ),
    ],
)
def test_metrics_are_skyrls_in_its_order(config: dict[str, Any], names: list[str]) -> None:
    _, metrics, _ = skyrl.compute_off_policy_correction(*tensors(OLD, ROLLOUT, MASK), config)
    assert list(metrics.items()) == [(name, SKYRL_METRICS[name]) for name in names]


HOME = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"


def put_skyrl(monkeypatch: pytest.MonkeyPatch, compute: Any) -> None:
    """Installs a SkyRL with this function."""
    skyrls = ModuleType(HOME)
    skyrls.compute_off_policy_correction = compute
    parts = HOME.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, HOME, skyrls)


def test_a_mask_that_weighs_tokens_is_skyrls_own_matter(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, old, rollout, mask = tensors(OLD * 5, OLD, ROLLOUT, MASK.astype(np.float32) / 2)
    asked = []

    def compute(*arguments: Any) -> Any:
        asked.append(arguments)
        return torch.full_like(old, 3.0), {"is_ratio_mean": 0.25}, mask * 0

    put_skyrl(monkeypatch, compute)
    config = SimpleNamespace(tis_ratio_type="token", token_tis_ratio_clip_high=2.0)
    with pytest.warns(UserWarning, match="SkyRL's own function corrects") as warned:
        corrected, kept, metrics = skyrl.apply_off_policy_correction(
            loss, old, rollout, mask, config
        )
    assert [w.filename for w in warned] == [__file__]
    assert asked == [(old, rollout, mask, config)]
    assert torch.equal(corrected, loss * 3)
    assert not kept.any()
    assert metrics == {"is_ratio_mean": 0.25}
    assert service.requests == []


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, torch.nan])
@pytest.mark.parametrize(
    "swapped",
    [None, lambda ours: ours, lambda ours: functools.wraps(ours)(lambda *args: ours(*args))],
)
def test_a_mask_that_weighs_tokens_is_refused_where_there_is_no_other_skyrl(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch, value: float, swapped: Any
) -> None:
    if swapped:
        put_skyrl(monkeypatch, swapped(skyrl.compute_off_policy_correction))
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK.astype(np.float32))
    mask[0, 1] = value
    with pytest.raises(cw.InvalidRequestError, match="weigh tokens") as caught:
        skyrl.compute_off_policy_correction(old, rollout, mask, {"tis_ratio_type": "token"})
    assert [v.field for v in caught.value.violations] == ["loss_mask"]
    assert service.requests == []


def test_unset_fields_of_a_newer_skyrl_are_left_out(service: FakeServer) -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    config = {"tis_ratio_type": "token", "sequence_mask_metric": None, "next": None, "after": 0.5}
    skyrl.compute_off_policy_correction(old, rollout, mask, config)
    # The server refuses unknown fields: here that matters.
    assert block(service.requests[0]) == {
        "off_policy_correction": {
            "tis_ratio_type": "token",
            "sequence_mask_metric": None,
            "after": 0.5,
        }
    }


def test_what_only_a_newer_skyrl_may_have_switched_on_is_a_warning(service: FakeServer) -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    config = SimpleNamespace(tis_ratio_type=None, next_metric="prefix", next_cap=None)
    with pytest.warns(UserWarning, match="they do nothing: next_metric$") as warned:
        skyrl.compute_off_policy_correction(old, rollout, mask, config)
    assert [w.filename for w in warned] == [__file__]
    assert service.requests == []


def test_all_ranks_have_the_same_names_while_the_server_is_away() -> None:
    loss, old, rollout, mask = tensors(OLD * 5, OLD, ROLLOUT, MASK)
    config = SimpleNamespace(tis_ratio_type="token", token_tis_ratio_clip_high=2.0)
    compat.use(target="localhost:1", retry_seconds=0, on_unavailable="identity")
    corrected, kept, metrics = skyrl.apply_off_policy_correction(loss, old, rollout, mask, config)
    np.testing.assert_array_equal(corrected.numpy()[MASK == 1], (OLD * 5)[MASK == 1])
    np.testing.assert_array_equal(kept.numpy(), MASK)
    assert list(metrics) == RATIO + TIS
    assert all(np.isnan(value) for value in metrics.values())
