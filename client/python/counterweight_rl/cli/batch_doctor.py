"""Names what is wrong with a batch of a file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from counterweight_rl.audit_rows import Audit
from counterweight_rl.cli import batch_file
from counterweight_rl.cli.problems import InputError, invalid
from counterweight_rl.client import Client
from counterweight_rl.config import Method
from counterweight_rl.diagnosis import Diagnosis

_SEVERITIES = ("note", "warning", "error", "never")
_UNREAD = "ref_log_probs"
OLD = "old_log_probs"
AUDIT_ROWS = "rows"
AUDIT_BEFORE_UPDATE = "before-update"


def examine(
    client: Client,
    path: pathlib.Path,
    policy_version: int | None,
    shadows: Sequence[Method] = (),
    audit: str | None = None,
    alarm: float | None = None,
) -> Diagnosis:
    """Examines the batch of a file.

    Args:
        client: A connected client.
        path: The file.
        policy_version: The version of the policy being trained, for versions of tokens.
        shadows: Methods to describe.
        audit: ``AUDIT_ROWS``, ``AUDIT_BEFORE_UPDATE``, or None.
        alarm: As in ``Audit``.

    Raises:
        InputError: The file has no batch, or it cannot be examined.
    """
    batch = batch_file.read(path)
    arrays = batch.arguments(has_version=policy_version is not None, has_groups=True)
    has_unread = arrays.pop(_UNREAD, None) is not None
    try:
        found = client.diagnose(
            policy_version=policy_version,
            shadows=shadows,
            audit=None if audit is None else _audit(batch, audit, alarm),
            **arrays,
        )
        if has_unread:
            found = replace(found, warnings=(*found.warnings, f"{_UNREAD} is not examined"))
        return found
    except (ValueError, TypeError) as error:
        raise invalid(error, path) from error


def _audit(batch: batch_file.BatchFile, kind: str, alarm: float | None) -> Audit:
    """Returns the audit of the file's rows.

    Raises:
        InputError: No row can be audited, or one has log-probs in a part alone.
    """
    if kind == AUDIT_BEFORE_UPDATE:
        return Audit(before_update=True, alarm=alarm)
    if OLD not in batch.arrays:
        raise InputError(
            f"{batch.path}: {OLD}: is missing; --audit {AUDIT_ROWS} audits the rows that have "
            f"them, and --audit {AUDIT_BEFORE_UPDATE} those of current_log_probs"
        )
    counts = batch.mask.reshape(-1) != 0
    rows = np.repeat(np.arange(len(batch.lengths)), batch.lengths)[counts]
    absent = np.isnan(batch.arrays[OLD].reshape(-1)[counts])
    tokens = np.bincount(rows, minlength=len(batch.lengths))
    missing = np.bincount(rows[absent], minlength=len(batch.lengths))
    partly = np.flatnonzero((missing > 0) & (missing < tokens))
    if partly.size:
        row = int(partly[0])
        raise InputError(
            f"{batch.path}: {OLD}: is NaN at {missing[row]} of the {tokens[row]} tokens of row "
            f"{row}; a row is audited as a whole, or is NaN everywhere"
        )
    audited = np.flatnonzero((tokens > 0) & (missing == 0))
    if not audited.size:
        raise InputError(f"{batch.path}: {OLD}: no row has a number to audit")
    return Audit(rows=audited.tolist() if missing.any() else None, alarm=alarm)


def _plain(found: Diagnosis) -> dict[str, Any]:
    """The numbers of a diagnosis for JSON."""
    plain = asdict(found)
    if found.audit is not None:
        plain["audit"]["sums"] = found.audit.sums.numbers.tolist()
    return plain


def report(found: Diagnosis, path: pathlib.Path, fail_on: str, *, as_json: bool) -> int:
    """Prints the findings; returns the exit code: 1 for one of the severity ``fail_on``."""
    if as_json:
        print(json.dumps(_plain(found), indent=2))
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
