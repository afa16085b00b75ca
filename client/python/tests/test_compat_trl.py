"""Requests and return values of the functions of compat.trl."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compat_service import DTYPES, block, cast_to, roles, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, Response

from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import trl  # noqa: E402

pytestmark = pytest.mark.usefixtures("service")


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_trl_ratio_has_the_dtype_of_trls_formula(dtypes: tuple[str, ...]) -> None:
    old, rollout, mask = cast_to(dtypes)
    ratio, _ = trl.vllm_importance_sampling_ratio(old, rollout, mask)
    assert ratio.dtype == ((old - rollout) * mask).exp().dtype


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # 1 where the mask is 0.
        ("token_truncate", [[1, 2, 1], [0.5, 1, 1], [1, 1, 1]]),
        # The row's value, from its first token that counts; 1 in a row without one.
        ("sequence_mask", [[1], [0.5], [1]]),
        ("sequence_geometric_mean_mask", [[1], [0.5], [1]]),
    ],
)
def test_trl_ratio(service: FakeServer, mode: str, expected: list[list[float]]) -> None:
    weights = np.array([[1, 2, 0], [0.5, 0, 0], [0, 0, 0]], "<f4")
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    if mode.startswith("sequence"):
        mask, weights = mask[:, ::-1], np.array([[0, 1, 1], [0, 0, 0.5], [0, 0, 0]], "<f4")
    service.handler = lambda request, _: Response(
        metrics={"sampling/x": 1.0},
        tensors=[
            tensor_pb2.Tensor(
                role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=weights.tobytes()
            )
        ],
    )
    log_probs = torch.zeros(3, 3)
    ratio, metrics = trl.vllm_importance_sampling_ratio(
        log_probs,
        log_probs,
        torch.from_numpy(mask.copy()),
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_max=None,
        vllm_importance_sampling_clip_min=0.25,
    )
    assert ratio.tolist() == expected
    assert metrics == {"sampling/x": 1.0}
    assert block(service.requests[0]) == {
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_max": None,
        "vllm_importance_sampling_clip_min": 0.25,
    }


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_trl_off_policy_mask(service: FakeServer, dtype: Any) -> None:
    current, rollout = tensors(OLD, ROLLOUT)
    mask = torch.from_numpy(MASK).to(dtype)
    # The server drops (0, 1) only; MASK is 0 at (0, 2), (1, 1) and (1, 2).
    keep = trl.get_off_policy_mask(
        advantages=torch.ones(2, 3),
        per_token_logps=current,
        sampling_per_token_logps=rollout,
        mask=mask,
        off_policy_threshold=0.5,
    )
    assert keep.dtype == dtype
    assert keep.int().tolist() == [[1, 0, 1], [1, 1, 1]]
    rows = trl.get_off_policy_mask(torch.ones(2, 1), current, rollout, mask, 0.5)
    assert rows.int().tolist() == [[1], [1]]
    for request in service.requests:
        assert block(request) == {
            "vllm_importance_sampling_correction": False,
            "off_policy_mask_threshold": 0.5,
        }
        assert roles(request) == {
            "CURRENT_LOG_PROBS",
            "ROLLOUT_LOG_PROBS",
            "ADVANTAGES",
            "RESPONSE_MASK",
        }
        assert list(request.outputs) == [tensor_pb2.TENSOR_ROLE_KEEP_MASK]
        assert not request.compute_loss


def test_trl_without_columns(service: FakeServer) -> None:
    service.handler = lambda request, _: Response(
        tensors=[tensor_pb2.Tensor(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8")]
    )
    empty = torch.zeros(2, 0)
    keep = trl.get_off_policy_mask(torch.ones(2, 1), empty, empty, empty.long(), 0.5)
    assert keep.tolist() == [[1], [1]]
