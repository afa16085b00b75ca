"""The call of ``Client.diagnose``."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from counterweight_rl import audit_rows, diagnosis, messages, shadow
from counterweight_rl.arguments import int_list, text
from counterweight_rl.arrays.batch import read_batch
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.arrays.version_spans import read_spans, read_staleness
from counterweight_rl.audit_rows import Audit
from counterweight_rl.calls import Call, identified, labels_of
from counterweight_rl.config import Method
from counterweight_rl.one_process import refuse_at_exit

if TYPE_CHECKING:
    from typing_extensions import Required

    class DiagnoseArguments(TypedDict, Generic[ArrayT], total=False):
        """The arguments of ``diagnose``, for functions that pass them on."""

        response_mask: Required[ArrayT]
        rollout_log_probs: ArrayT | None
        old_log_probs: ArrayT | None
        current_log_probs: ArrayT | None
        advantages: ArrayT | None
        sequence_lengths: Iterable[int] | None
        group_ids: Iterable[int] | None
        policy_version: int | None
        policy_versions: ArrayT | None
        version_spans: Iterable[Any] | None
        staleness: ArrayT | int | None
        audit: Audit | None
        shadows: Iterable[Method]
        run: str | None
        request_id: str | None
        timeout: float | None


def diagnose(
    *,
    response_mask: ArrayT,
    rollout_log_probs: ArrayT | None = None,
    old_log_probs: ArrayT | None = None,
    current_log_probs: ArrayT | None = None,
    advantages: ArrayT | None = None,
    sequence_lengths: Iterable[int] | None = None,
    group_ids: Iterable[int] | None = None,
    policy_version: int | None = None,
    policy_versions: ArrayT | None = None,
    version_spans: Iterable[Any] | None = None,
    staleness: ArrayT | int | None = None,
    audit: Audit | None = None,
    shadows: Iterable[Method] = (),
    run: str | None = None,
    request_id: str | None = None,
    timeout: float | None = None,
) -> Call[diagnosis.Diagnosis]:
    """Builds the call of ``Client.diagnose``."""
    refuse_at_exit()
    request_id = uuid.uuid4().hex if request_id is None else text("request_id", request_id)
    with identified(request_id):
        if staleness is not None:
            told = (policy_version, policy_versions, version_spans)
            if any(each is not None for each in told):
                raise ValueError(
                    "staleness: stands for versions; leave policy_version and them out"
                )
            policy_version, policy_versions = read_staleness(staleness)
        batch = read_batch(
            {
                "rollout_log_probs": rollout_log_probs,
                "old_log_probs": old_log_probs,
                "current_log_probs": current_log_probs,
                "advantages": advantages,
                "policy_versions": policy_versions,
            },
            response_mask,
            sequence_lengths,
            None,
        )
        message: messages.Message = {"request_id": request_id, "layout": batch.layout}
        if group_ids is not None:
            message["group_ids"] = int_list("group_ids", group_ids)
        labels = labels_of(run=run, replica=None, policy_version=policy_version, step=None)
        if labels:
            message["labels"] = labels
        if staleness is not None and policy_versions is None:
            version_spans = [(i, 0, n, 0) for i, n in enumerate(batch.lengths) if n > 0]
        if audit is not None:
            message["audit"] = audit_rows.to_message(audit)
        wanted = shadow.to_messages(shadows)
        if wanted:
            message["shadows"] = wanted
        if version_spans is not None:
            message["version_spans"] = read_spans(version_spans, batch.num_sequences)
        read = diagnosis.reader(audit=audit is not None, shadows=bool(wanted))
        return Call("Diagnose", read, timeout, request_id, message=message, examined=batch)


ARGUMENTS = inspect.signature(diagnose).parameters
"""The arguments of ``diagnose`` by name."""
REQUIRED = ("response_mask",)
