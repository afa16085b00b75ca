"""Audited rows, which measure the drift between engine and trainer: argument and answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from counterweight_rl import messages
from counterweight_rl.arguments import boolean, int_list, number

_ADVICE = "AUDIT_ADVICE_"


@dataclass(frozen=True, eq=False)
class AuditSums:
    """Sums of audited rows; ``+`` adds those of other batches, exactly.

    Attributes:
        numbers: Add up number by number, as an all-reduce of SUM over float64 does; of 8,192
            batches at most.
    """

    numbers: npt.NDArray[np.float64]

    def __add__(self, other: AuditSums) -> AuditSums:
        """Returns the sums of both."""
        return AuditSums(self.numbers + other.numbers)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Rows that measure the drift between engine and trainer: a random sample of a run's.

    Attributes:
        before_update: ``current_log_probs`` are of before the step's first update, so that they are
            old ones for nothing, and all rows are audited. Without it ``old_log_probs`` are read.
        rows: The rows that have ``old_log_probs``, ascending; those of others are not read. None:
            all.
        earlier: Sums of earlier batches, which the answer is of too. None: of this batch alone.
        alarm: The mean k3 at which you would act, nats, > 0. None: the advice is for a mean within
            a tenth.
    """

    before_update: bool = False
    rows: Iterable[int] | None = None
    earlier: AuditSums | None = None
    alarm: float | None = None


@dataclass(frozen=True)
class AuditedDrift:
    """The drift of audited rows; ``print`` shows its sentence.

    Attributes:
        rows: Audited rows with tokens, of all batches.
        tokens: Their tokens.
        k3: Mean over the tokens, nats; NaN without any.
        low: The lower end of its interval, which holds the mean over all rows in about 9 of 10
            samples. None below 32 rows.
        high: The upper end.
        more_rows: Rows like these until the interval is within a tenth.
        advice: "more": the interval holds the alarm, or is wider than a tenth without one.
            "enough". "less": it lies beyond twice the alarm, or below half of it.
        sentence: The same for a person.
        sums: Those of this batch.
    """

    rows: int
    tokens: int
    k3: float
    low: float | None
    high: float | None
    more_rows: int
    advice: str
    sentence: str = field(repr=False)
    sums: AuditSums = field(repr=False)

    def __str__(self) -> str:
        return self.sentence


def to_message(audit: Audit) -> messages.Message:
    """Returns the message of an audit.

    Raises:
        TypeError: A value has a wrong type.
        ValueError: A row does not fit 64 bits.
    """
    if not isinstance(audit, Audit):
        raise TypeError(f"audit must be an Audit, not {type(audit).__name__}")
    message: messages.Message = {
        "before_update": boolean("audit.before_update", audit.before_update)
    }
    if audit.rows is not None:
        message["rows"] = int_list("audit.rows", audit.rows)
        if not message["rows"]:
            raise ValueError("audit.rows: is empty; None means all")
    if audit.earlier is not None:
        if not isinstance(audit.earlier, AuditSums):
            raise TypeError("audit.earlier must be the sums of an AuditedDrift")
        message["sums"] = audit.earlier.numbers.tolist()
    if audit.alarm is not None:
        message["alarm"] = number("audit.alarm", audit.alarm)
    return message


def read(message: messages.Message) -> AuditedDrift:
    """Reads the answer's message."""
    ends = (message.get("low"), message.get("high"))
    low, high = (None if end is None else float(end) for end in ends)
    advice: Any = message.get("advice", "")
    return AuditedDrift(
        rows=int(message.get("rows", 0)),
        tokens=int(message.get("tokens", 0)),
        k3=float(message.get("k3", 0.0)),
        low=low,
        high=high,
        more_rows=int(message.get("moreRows", 0)),
        advice=str(advice).removeprefix(_ADVICE).lower(),
        sentence=message.get("sentence", ""),
        sums=AuditSums(np.array(message.get("sums", ()), np.float64)),
    )
