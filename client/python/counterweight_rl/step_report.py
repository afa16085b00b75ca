"""The call of ``Client.report_step``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from counterweight_rl import messages
from counterweight_rl.arguments import boolean, integer, text
from counterweight_rl.calls import Call, identified, labels_of
from counterweight_rl.one_process import refuse_at_exit
from counterweight_rl.receipt import WARNINGS, Receipt, judge

COUNT = (0, 1 << 48)
"""Limits of every count of a report."""
REPORTS = "reports of steps"
"""Their name in messages about a server that does not take them."""
_REPORTS = (1, 65536)
_STATE = "RECEIPT_STATE_"


@dataclass(frozen=True)
class StepReport:
    """The answer to a report of a step.

    Attributes:
        state: "used": the loss used the weights that were issued. "unused": its weights were all 1,
            or it ignored the mask. "rounded": it used rounded ones. "replaced": others. None: not
            known, as a side is missing or reports of other processes are.
        warnings: Why a state is not "used", and what to do.
    """

    state: str | None
    warnings: tuple[str, ...]


def report_step(
    *,
    run: str,
    step: int,
    tokens: int,
    issued: Receipt | None = None,
    applied: Receipt | None = None,
    skipped_batches: Mapping[str, int] | None = None,
    ratio_all_one: bool = False,
    num_reports: int = 1,
    replica: str | None = None,
    policy_version: int | None = None,
    request_id: str | None = None,
    timeout: float | None = None,
) -> Call[StepReport]:
    """Builds the call of ``Client.report_step``."""
    refuse_at_exit()
    request_id = uuid.uuid4().hex if request_id is None else text("request_id", request_id)
    with identified(request_id):
        message: messages.Message = {
            "request_id": request_id,
            "labels": labels_of(
                run=text("run", run),
                replica=replica,
                policy_version=policy_version,
                step=integer("step", step),
            ),
            "tokens": integer("tokens", tokens, COUNT),
            "num_reports": integer("num_reports", num_reports, _REPORTS),
        }
        for name, receipt in (("issued", issued), ("applied", applied)):
            if receipt is None:
                continue
            if not isinstance(receipt, Receipt):
                raise TypeError(
                    f"{name} must be a Receipt, which counterweight_rl.applied returns, not "
                    f"{type(receipt).__name__}"
                )
            message[name] = asdict(receipt)
        if boolean("ratio_all_one", ratio_all_one):
            message["ratio_all_one"] = True
        if skipped_batches:
            message["skipped_batches"] = {
                text("skipped_batches", reason): integer(f"skipped_batches[{reason!r}]", n, COUNT)
                for reason, n in skipped_batches.items()
            }
        return Call("ReportStep", _read, timeout, request_id, message=message)


def answer(message: Mapping[str, Any]) -> messages.Message:
    """Returns what a server answers to a report with both sides and no others to wait for."""
    sides = (message.get(name) for name in ("issued", "applied"))
    issued, applied = (None if side is None else Receipt(**side) for side in sides)
    state = judge(issued, applied) if message["num_reports"] == 1 else None
    if state is None:
        return {}
    warning = WARNINGS.get(state)
    return {"state": _STATE + state.upper(), "warnings": [warning] if warning else []}


def _read(message: messages.Message) -> StepReport:
    state = message.get("state", "").removeprefix(_STATE).lower()
    known = state and state != "unspecified"
    return StepReport(state if known else None, tuple(message.get("warnings", ())))
