"""Bounds that take a given share out of one batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from counterweight_rl.cli import display
from counterweight_rl.cli.batch_file import Array, BatchFile
from counterweight_rl.cli.compare import Outcome, compare
from counterweight_rl.cli.problems import InputError
from counterweight_rl.client import Client
from counterweight_rl.config import Preset

SHARES = (0.01, 0.05, 0.10)
# Log ratios are clamped as the presets clamp them, nats.
_CLAMP = 20.0
_ADVICE = """\
Each column has bounds that take out at most that share of the tokens, or of
the sequences, of this batch. They do not tell which method learns better.
Choose them on a batch with healthy drift and keep them, so that a later batch
with more drift loses more."""


@dataclass(frozen=True)
class Rule:
    """A kind of bound.

    Attributes:
        decoupled: Preset that compares old with rollout log-probs.
        bypass: Preset that compares current with rollout log-probs; empty if there is none.
        also: Presets with parameters of the same names and meaning.
        bounds: Names of the bounds; two are the ends of an interval of ratios around 1.
        statistic: The bounded number of each token or sequence, from the log ratios of a sequence.
            The nearest to 0 stay; it is a log ratio, unless the rule bounds k3.
        taken: The effects that are shown: attribute of ``Outcome`` and words.
    """

    decoupled: str
    bypass: str
    also: tuple[str, ...]
    bounds: tuple[str, ...]
    statistic: Callable[[Array], Any]
    taken: tuple[tuple[str, str], ...]


_DROPPED = (("dropped_sequences", "sequences dropped"), ("dropped_tokens", "tokens dropped"))
_KEEP = ("keep_lower", "keep_upper")

RULES = (
    Rule(
        "token_tis",
        "",
        ("skyrl_token_tis",),
        ("upper",),
        lambda ratios: ratios,
        (("truncated_weights", "weights at bound"),),
    ),
    Rule(
        "icepop",
        "bypass_icepop",
        ("trl_token_mask", "openrlhf_icepop"),
        ("lower", "upper"),
        np.abs,
        (("zero_weights", "weights of 0"),),
    ),
    Rule("skyrl_token_mask", "", (), _KEEP, np.abs, _DROPPED[1:]),
    Rule(
        "geo_rs_token_tis",
        "bypass_geo_rs_token_tis",
        ("geo_rs", "geo_rs_seq_tis", "skyrl_geometric_mask"),
        _KEEP,
        lambda ratios: abs(ratios.mean()),
        _DROPPED,
    ),
    Rule(
        "k3_rs_token_tis",
        "bypass_ppo_clip_k3_rs",
        ("k3_rs", "k3_rs_seq_tis"),
        ("keep_upper",),
        lambda ratios: (np.expm1(ratios) - ratios).mean(),
        _DROPPED,
    ),
    Rule(
        "seq_mis",
        "",
        ("skyrl_product_mask",),
        _KEEP,
        lambda ratios: abs(ratios.sum()),
        _DROPPED,
    ),
    Rule("skyrl_outlier_mask", "", (), _KEEP, lambda ratios: np.abs(ratios).max(), _DROPPED),
)


@dataclass(frozen=True)
class Suggestion:
    """The bounds of a rule.

    Attributes:
        preset: Preset that the bounds are for.
        also: Others that they fit.
        parameters: For each of SHARES the preset's parameters.
        outcomes: For each of SHARES the effect of these parameters, as computed with them.
        taken: See ``Rule``.
    """

    preset: str
    also: tuple[str, ...]
    parameters: tuple[dict[str, Any], ...]
    outcomes: tuple[Outcome, ...]
    taken: tuple[tuple[str, str], ...] = field(repr=False)


def suggest(client: Client, batch: BatchFile) -> list[Suggestion]:
    """The bounds of each rule that the file has the log-probs for.

    Raises:
        InputError: The file lacks log-probs, no token counts, or the batch is refused.
    """
    has_old = "old_log_probs" in batch.arrays
    numerator = "old_log_probs" if has_old else "current_log_probs"
    if "rollout_log_probs" not in batch.arrays or numerator not in batch.arrays:
        raise InputError(
            f"{batch.path}: needs rollout_log_probs, and old_log_probs or current_log_probs"
        )
    # The engine refuses what is not finite, by the name of the array.
    compare(client, batch, {"none" if has_old else "bypass_ppo_clip": _drift(has_old)})
    rows = _log_ratios(batch, numerator)
    if not rows:
        raise InputError(f"{batch.path}: response_mask: no token counts")
    found = []
    for rule in RULES:
        preset = rule.decoupled if has_old else rule.bypass
        if not preset:
            continue
        values = np.concatenate([np.atleast_1d(rule.statistic(row)) for row in rows])
        chosen = tuple(_bounds(rule, values, share) for share in SHARES)
        outcomes = tuple(
            compare(client, batch, {preset: Preset(preset, **bounds)})[0] for bounds in chosen
        )
        found.append(Suggestion(preset, rule.also if has_old else (), chosen, outcomes, rule.taken))
    return found


def _drift(has_old: bool) -> Preset:
    return Preset("none" if has_old else "bypass_ppo_clip")


def _log_ratios(batch: BatchFile, numerator: str) -> list[Array]:
    """The log ratios of the tokens that count, by sequence."""
    counts = batch.mask.reshape(-1) != 0
    sampled = batch.arrays["rollout_log_probs"].reshape(-1).astype(np.float64)
    trained = batch.arrays[numerator].reshape(-1).astype(np.float64)
    # Positions outside the mask may hold anything.
    with np.errstate(invalid="ignore"):
        ratios = np.clip(trained - sampled, -_CLAMP, _CLAMP)
    ends = np.cumsum(batch.lengths)[:-1]
    parts = zip(np.split(ratios, ends), np.split(counts, ends), strict=True)
    return [row[mask] for row, mask in parts if mask.any()]


def _bounds(rule: Rule, values: Array, share: float) -> dict[str, Any]:
    """The narrowest bounds that at most this share of the values exceeds, rounded outwards."""
    # The small addend keeps a share of five values that is one of them from being rounded to none.
    exceed = min(math.floor(share * len(values) + 1e-9), len(values) - 1)
    limit = float(np.sort(values)[len(values) - 1 - exceed])
    if rule.decoupled.startswith("k3"):
        return {rule.bounds[0]: _up(limit, 0.0)}
    limit = max(limit, 0.0)
    upper = _up(math.exp(limit), 1.0)
    if len(rule.bounds) == 1:
        return {rule.bounds[0]: upper}
    return {rule.bounds[0]: _down(math.exp(-limit)), rule.bounds[1]: upper}


def _up(value: float, base: float) -> float:
    """The next larger number with ``_digits``; never ``base`` itself."""
    distance = max(value - base, 1e-6)
    digits = _digits(base + distance, distance)
    scale = 10.0**digits
    return round(math.ceil((base + distance) * scale * (1 + 1e-12)) / scale, max(digits, 0))


def _down(value: float) -> float:
    """The next smaller number with ``_digits``; never 1 itself."""
    distance = max(1 - value, 1e-6)
    digits = _digits(1 - distance, distance)
    scale = 10.0**digits
    return round(math.floor((1 - distance) * scale) / scale, digits)


def _digits(value: float, distance: float) -> int:
    """Decimals that keep three digits of a value above 0 and two of its distance from 1 or 0."""
    return max(2 - math.floor(math.log10(value)), 1 - math.floor(math.log10(distance)))


def show(where: Console, batch: BatchFile, suggestions: Sequence[Suggestion]) -> None:
    """Prints a row for each rule."""
    sequences, tokens = len(batch.lengths), int((batch.mask != 0).sum())
    rows = []
    for each in suggestions:
        names = list(each.parameters[0])
        labels = [*names, *(words for _, words in each.taken)]
        columns = [
            [
                *(f"{bounds[name]:.8g}" for name in names),
                *(display.share(getattr(outcome, name)) for name, _ in each.taken),
            ]
            for bounds, outcome in zip(each.parameters, each.outcomes, strict=True)
        ]
        presets = [each.preset, *(f"  {name}" for name in each.also)]
        rows.append(["\n".join(cells) for cells in (presets, labels, *columns)])
    title = f"{batch.path}: {sequences} sequences, {tokens} tokens"
    heads = ("preset\n  same bounds for", "parameter", *(f"{share:.0%}" for share in SHARES))
    display.print_table(where, title, display.table(heads, rows, left=2, show_lines=True))
    where.print(_ADVICE)
    if sequences < 1 / SHARES[0]:
        where.print(f"1 % of {sequences} sequences is less than one: the 1 % bounds drop none.")


def suggestions_json(suggestions: Sequence[Suggestion]) -> str:
    """The numbers without the weights."""
    rows = [
        {
            "preset": each.preset,
            "also": each.also,
            "choices": [
                {"share": share, "parameters": bounds}
                | {name: getattr(outcome, name) for name, _ in each.taken}
                for share, bounds, outcome in zip(
                    SHARES, each.parameters, each.outcomes, strict=True
                )
            ],
        }
        for each in suggestions
    ]
    return json.dumps(rows, indent=2)
