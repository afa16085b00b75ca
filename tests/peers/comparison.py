"""The definition of equal answers.

The original runs twice: as called, for dtypes, names and exceptions, and on the same numbers in
float64, for values, since its own rounding is not compared. Tolerances are those of
tests/golden/README.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import counterweight_rl as cw
import torch

WEIGHT = {"rtol": 1e-5, "atol": 1e-8}
METRIC = {"rtol": 2e-5, "atol": 2e-6}
LOSS = {"rtol": 2e-5, "atol": 1e-7}
GRADIENT_RTOL, GRADIENT_ATOL_OF_LARGEST = 2e-5, 1e-6


def in_float64(value: Any) -> Any:
    """Returns a batch or a value with every floating-point tensor in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: in_float64(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value)(**fields)
    return value


def same_values(
    actual: torch.Tensor,
    exact: torch.Tensor,
    where: torch.Tensor,
    *,
    rounded: torch.dtype | None = None,
) -> None:
    """Weights of the shape and the values of ``exact`` where kept; constants of autograd.

    ``rounded`` is the dtype that they were rounded to, unless it is that of ``actual``.
    """
    assert actual.shape == exact.shape
    assert not actual.requires_grad
    kept = (where != 0).expand(actual.shape)
    # Neighbours in a short dtype are equal: the float32 number may lie on either side.
    info = torch.finfo(rounded or actual.dtype)
    rtol = info.eps if info.bits < 32 else WEIGHT["rtol"]
    torch.testing.assert_close(
        actual[kept].double(), exact[kept].double(), rtol=rtol, atol=WEIGHT["atol"]
    )


def same_numbers(
    actual: Mapping[str, Any], called: Mapping[str, Any], exact: Mapping[str, Any]
) -> None:
    """Checks the original's metrics, of its types, with the values of ``exact``."""
    for name, value in called.items():
        assert type(actual[name]) is type(value), name
        assert _close(float(actual[name]), float(exact[name]), **METRIC), (
            f"{name}: {actual[name]}, the original's {exact[name]}"
        )


def same_metrics(
    actual: Mapping[str, Any], called: Mapping[str, Any], exact: Mapping[str, Any]
) -> None:
    """Checks those metrics and that there are no others."""
    same_numbers(actual, called, exact)
    assert set(actual) == set(called)


def same_loss(actual: torch.Tensor, called: torch.Tensor, exact: torch.Tensor) -> None:
    """A scalar of the dtype of ``called`` with the value of ``exact``; NaN equals NaN."""
    assert actual.dtype == called.dtype
    assert actual.shape == called.shape == ()
    assert _close(actual.item(), exact.item(), **LOSS), f"{actual.item()}, not {exact.item()}"


def same_gradient(
    actual: torch.Tensor, called: torch.Tensor, exact: torch.Tensor, where: torch.Tensor
) -> None:
    """Checks that gradients are equal where the mask is 1; ours is 0 elsewhere."""
    assert actual.dtype == called.dtype
    assert (actual[where == 0] == 0).all()
    kept = where != 0
    atol = GRADIENT_ATOL_OF_LARGEST * exact[kept].abs().max().item() if kept.any() else 0.0
    torch.testing.assert_close(
        actual[kept].double(), exact[kept].double(), rtol=GRADIENT_RTOL, atol=atol
    )


def is_refusal(error: BaseException) -> None:
    """The exception that every module of compat documents for wrong settings and numbers."""
    assert isinstance(error, cw.InvalidRequestError), repr(error)


def _close(actual: float, expected: float, *, rtol: float, atol: float) -> bool:
    if not math.isfinite(expected):
        return actual == expected or (math.isnan(actual) and math.isnan(expected))
    return abs(actual - expected) <= atol + rtol * abs(expected)
