"""The table of methods."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console

from counterweight_rl.choices import RuleEffect
from counterweight_rl.cli import display
from counterweight_rl.cli.problems import InputError
from counterweight_rl.config import CorrectionConfig
from counterweight_rl.info import MethodInfo
from counterweight_rl.suggestions import did_you_mean

_OTHERS = "Others"
# The groups of kernels/METHODS.md in the order of that page.
_GROUPS = {
    "Importance weights": "no token is dropped, a weight of 0 stays in denominators",
    "Rejection": "rules that drop tokens or sequences, some beside weights",
    "Losses": "the policy loss with its gradient, some beside weights and rules",
    "Drift only": "metrics, and the mask as it is sent",
    _OTHERS: "the server does not spell them out",
}


def show(where: Console, methods: Sequence[MethodInfo], name: str | None, *, as_json: bool) -> None:
    """Prints all methods, or one with everything about it.

    Raises:
        InputError: No method has that name.
    """
    chosen = [each for each in methods if name in (None, each.name)]
    if not chosen:
        hint = did_you_mean(name, [each.name for each in methods])
        raise InputError(
            f"there is no method {name!r}{hint or '; counterweight methods lists all'}"
        )
    if as_json:
        rows = [dataclasses.asdict(each) for each in chosen]
        print(json.dumps(rows if name is None else rows[0], indent=2))
    elif name is None:
        _show_groups(where, chosen)
    else:
        _show_one(where, chosen[0])


def _group(method: MethodInfo) -> str:
    """The heading in kernels/METHODS.md."""
    config: CorrectionConfig | None = method.config
    if config is None:
        return _OTHERS
    if config.policy_loss is not None:
        return "Losses"
    if any(rule.effect is RuleEffect.DROP for rule in config.rules):
        return "Rejection"
    return "Drift only" if config.importance_weight is None else "Importance weights"


def _show_groups(where: Console, methods: Sequence[MethodInfo]) -> None:
    for group, words in _GROUPS.items():
        rows = [(each.name, each.when_to_use) for each in methods if _group(each) == group]
        if not rows:
            continue
        title = f"{group}: {words}"
        display.print_table(where, title, display.table(("method", "when"), rows, left=2))
        where.print()
    where.print("counterweight methods NAME explains one, with its formula and parameters;")
    where.print("counterweight suggest FILE prints bounds that fit a batch.")


def _show_one(where: Console, method: MethodInfo) -> None:
    origin = f"{method.origin} {method.origin_name}".strip()
    where.print(f"{method.name} (from {origin})", style="bold")
    where.print(method.summary)
    where.print()
    for part in method.formula.split("; "):
        where.print(f"  {part}")
    where.print()
    where.print(f"When: {method.when_to_use}", soft_wrap=True)
    if method.reference:
        where.print(f"Paper: {method.reference}", soft_wrap=True)
    for each in method.parameters:
        unit = f" ({each.unit})" if each.unit else ""
        text = f"{each.name} = {each.default_value:g}{unit}: {each.description}"
        where.print(f"Parameter {text}", soft_wrap=True)
    for system, block in method.equivalents.items():
        where.print(f"The same in {system}'s words: {block}", soft_wrap=True)
