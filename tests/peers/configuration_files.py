"""A peer's own example configurations as blocks of its dialect."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import releases
import torch
import yaml
from counterweight_rl.compat import client

ANSWERED = "answered"


def outcomes(
    system: str, pattern: str, node_of: Callable[[dict[str, Any]], Any], *, ignore: bool
) -> collections.Counter[str]:
    """Returns how many files of the checkout are answered, and how many refused by field.

    Args:
        system: The dialect.
        pattern: Of the files in the checkout.
        node_of: Returns the block in a file's tree; what is no mapping is left out.
        ignore: Whether fields that the dialect does not know are ignored.
    """
    found: collections.Counter[str] = collections.Counter()
    for path in sorted(releases.folder().glob(pattern)):
        tree = yaml.safe_load(path.read_text())
        block = node_of(tree) if isinstance(tree, dict) else None
        if isinstance(block, dict):
            found[_outcome(cw.Dialect(system, block, ignore_unknown_fields=ignore))] += 1
    return found


def _outcome(method: cw.Dialect) -> str:
    log_probs = torch.full((2, 3), -1.0)
    policies = ("current", "old", "rollout", "ref")
    try:
        client().correct(
            **{f"{name}_log_probs": log_probs for name in policies},
            advantages=torch.ones(2, 3),
            response_mask=torch.ones(2, 3),
            method=method,
            outputs=["loss", "gradient"],
        )
    except cw.InvalidRequestError as error:
        return error.violations[0].field.removeprefix("method.block.")
    except TypeError as error:
        return str(error).rpartition(": ")[2]
    return ANSWERED
