"""The fake server's answers to the functions of ``counterweight_rl.compat``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import json_format
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response

from counterweight_rl._gen.counterweight.v1 import tensor_pb2

GRADIENT = np.array([[0.5, -2.0, 0], [0.25, 0, 0]], "<f4")
KEEP = np.array([[1, 0, 0], [1, 0, 0]], np.uint8)
OUTPUTS = {
    tensor_pb2.TENSOR_ROLE_WEIGHTS: ("D_TYPE_F32", WEIGHTS),
    tensor_pb2.TENSOR_ROLE_KEEP_MASK: ("D_TYPE_U8", KEEP),
    tensor_pb2.TENSOR_ROLE_GRADIENT: ("D_TYPE_F32", GRADIENT),
}
METRICS = {
    "actor/ppo_kl": 0.5,
    "rollout_corr/kl": 0.25,
    "training/other": 1.0,
    "ppo_clip_ratio": 0.125,
    "ppo_kl": -0.5,
}

# All metrics of the dialect, in the order of a Result.
SKYRL_METRICS = {
    name: float(value)
    for value, name in enumerate(
        [
            "clip_ratio",
            "geo_sequence_mask_masked_ratio",
            "geo_sequence_mask_over_high_ratio",
            "geo_sequence_mask_under_low_ratio",
            "is_ratio_max",
            "is_ratio_mean",
            "is_ratio_min",
            "is_ratio_std",
            "outlier_seq_masked_ratio",
            "outlier_seq_over_high_ratio",
            "outlier_seq_under_low_ratio",
            "policy/rollout_train_logprobs_abs_diff_mean",
            "product_sequence_mask_masked_ratio",
            "product_sequence_mask_over_high_ratio",
            "product_sequence_mask_under_low_ratio",
            "tis_seq_clip_high_ratio",
            "tis_token_clip_high_ratio",
            "token_mask_ratio",
        ]
    )
}


def answers(metrics: dict[str, float], *warnings: str) -> Callable[[Request, Any], Response]:
    """Returns a handler: the requested outputs, these metrics, and a loss of 1.5."""

    def handler(request: Request, _: Any) -> Response:
        response = Response(metrics=metrics, warnings=warnings)
        weights_and_mask = list(OUTPUTS)[:2]
        for role in request.outputs or weights_and_mask:
            dtype, array = OUTPUTS[role]
            name = tensor_pb2.TensorRole.Name(role)
            response.tensors.add(role=name, dtype=dtype, data=array.tobytes())
        if request.compute_loss:
            response.loss = 1.5
        return response

    return handler


def tensors(*arrays: np.ndarray) -> list[Any]:
    torch = sys.modules["torch"]
    return [torch.from_numpy(array.copy()) for array in arrays]


# Dtypes of old and rollout log-probs and of the mask.
DTYPES = [
    ("bfloat16", "bfloat16", "int64"),
    ("bfloat16", "bfloat16", "float32"),
    ("bfloat16", "float32", "bool"),
    ("float32", "bfloat16", "int64"),
    ("float16", "bfloat16", "int64"),
    ("float32", "float32", "bool"),
    ("float64", "float64", "float32"),
]


def cast_to(dtypes: tuple[str, ...]) -> list[Any]:
    torch = sys.modules["torch"]
    sample = zip(tensors(OLD, ROLLOUT, MASK), dtypes, strict=True)
    return [tensor.to(getattr(torch, dtype)) for tensor, dtype in sample]


def block(request: Request) -> Any:
    return json_format.MessageToDict(request.method.dialect.block)


def roles(request: Request) -> set[str]:
    return {
        tensor_pb2.TensorRole.Name(t.role).removeprefix("TENSOR_ROLE_") for t in request.tensors
    }
