"""Builds the ``repr`` of a Result: a short summary."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

_WIDTH = 100
_NO_BREAK = "\N{NO-BREAK SPACE}"
_ARRAYS = ("weights", "keep_mask", "gradient", "token_reasons", "sequence_reasons")
# The displayed metrics: the drift, by the names of native methods and of dialects.
_SHOWN = (
    "kl",
    "k3",
    "effective_sample_size",
    "rollout_corr/kl",
    "rollout_corr/k3_kl",
    "rollout_corr/rollout_is_eff_sample_size",
    "vllm_kl",
    "is_ratio_mean",
    "sampling/importance_sampling_ratio/mean",
)
_MASKED = "rollout_corr/rollout_rs_masked_fraction"  # verl's name for the share that is not kept
_MAX_WARNINGS = 2


def summarize(result: Any) -> str:
    """Returns at most 12 lines of at most 100 characters for a Result; reads no array."""
    lines = [_cut(f"Result of request {result.request_id!r}, computed by {result.backend}")]
    arrays = [_describe(name, getattr(result, name)) for name in _ARRAYS]
    lines += _list("arrays", [text for text in arrays if text] or ["none"])
    if result.loss is not None:
        lines += _list("loss", [f"{result.loss:.6g}"])
    lines += _list("kept", _kept(result.metrics, result.non_finite_tokens), max_lines=1)
    lines += _list("metrics", _metrics(result.metrics))
    lines += _list(
        "rules",
        [
            f"{rule.name} dropped {_count(rule.dropped_tokens, 'token')} in "
            f"{_count(rule.dropped_sequences, 'sequence')}"
            for rule in result.rules
        ],
    )
    return "\n".join(lines + _warnings(result.warnings))


def _describe(name: str, array: Any) -> str:
    if array is None:
        return ""
    device = getattr(array, "device", "cpu")  # numpy's arrays have it since version 2
    on = "" if str(device) == "cpu" else f" on {device}"
    return f"{name} {array.dtype} {list(array.shape)}{on}"


def _kept(metrics: dict[str, float], non_finite_tokens: int) -> Iterable[str]:
    for what in ("token", "sequence"):
        share = metrics.get(f"kept_{what}_fraction")
        if share is not None:
            yield f"{100 * share:.6g}% of {metrics.get(f'{what}s', math.nan):.0f} {what}s"
    if _MASKED in metrics:
        yield f"{100 - 100 * metrics[_MASKED]:.6g}% of the tokens"
    if non_finite_tokens:
        yield f"{_count(non_finite_tokens, 'token')} not finite"


def _metrics(metrics: dict[str, float]) -> list[str]:
    shown = [f"{name} {metrics[name]:.4g}" for name in _SHOWN if name in metrics]
    others = len(metrics) - len(shown)
    if others:
        shown.append(f"{others} {'more' if shown else 'metrics'}")
    return shown


def _warnings(warnings: tuple[str, ...]) -> list[str]:
    if not warnings:
        return []
    lines = [f"  warnings: {len(warnings)}"]
    for warning in warnings[:_MAX_WARNINGS]:
        lines.append(_cut("    " + (warning.splitlines() or [""])[0]))
    return lines


def _list(title: str, items: Iterable[str], max_lines: int = 2) -> list[str]:
    """Returns the items after their title; no line without items."""
    # Lines break between items only: textwrap does not break at this blank.
    text = ", ".join(item.replace(" ", _NO_BREAK) for item in items)
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"  {title + ':':9} ",
        subsequent_indent=" " * 12,
        max_lines=max_lines,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
