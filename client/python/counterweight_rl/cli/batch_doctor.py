"""Names what is wrong with a batch of a file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, replace

from counterweight_rl.cli import batch_file
from counterweight_rl.cli.problems import invalid
from counterweight_rl.client import Client
from counterweight_rl.config import Method
from counterweight_rl.diagnosis import Diagnosis

_SEVERITIES = ("note", "warning", "error", "never")
_UNREAD = "ref_log_probs"


def examine(
    client: Client,
    path: pathlib.Path,
    policy_version: int | None,
    shadows: Sequence[Method] = (),
) -> Diagnosis:
    """Examines the batch of a file.

    Raises:
        InputError: The file has no batch, or it cannot be examined.
    """
    batch = batch_file.read(path)
    arrays = batch.arguments(has_version=policy_version is not None, has_groups=True)
    has_unread = arrays.pop(_UNREAD, None) is not None
    try:
        found = client.diagnose(policy_version=policy_version, shadows=shadows, **arrays)
        if has_unread:
            found = replace(found, warnings=(*found.warnings, f"{_UNREAD} is not examined"))
        return found
    except (ValueError, TypeError) as error:
        raise invalid(error, path) from error


def report(found: Diagnosis, path: pathlib.Path, fail_on: str, *, as_json: bool) -> int:
    """Prints the findings; returns the exit code: 1 for one of the severity ``fail_on``."""
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(f"{path}: {found}")
        if found.attribution is not None:
            print(found.attribution.table())
        for warning in found.warnings:
            print(f"warning: {warning}")
    least = _SEVERITIES.index(fail_on)
    # A severity that only a newer server knows counts as an error.
    ranks = (
        _SEVERITIES.index(each.severity) if each.severity in _SEVERITIES else 2
        for each in found.findings
    )
    return int(any(rank >= least for rank in ranks))
