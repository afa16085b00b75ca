"""The call of ``Client.declare_run``."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from counterweight_rl import messages
from counterweight_rl.arguments import text
from counterweight_rl.calls import Call, identified, labels_of
from counterweight_rl.config import Method
from counterweight_rl.one_process import refuse_at_exit


@dataclass(frozen=True)
class RunDeclaration:
    """The answer to a declaration of a run's method.

    Attributes:
        method: The method's name in answers and logs: a preset's or a system's name, or "config".
        warnings: The run declared another method before; sentences about the block.
    """

    method: str
    warnings: tuple[str, ...]


def declare_run(
    method: Method, *, run: str, request_id: str | None = None, timeout: float | None = None
) -> Call[RunDeclaration]:
    """Builds the call of ``Client.declare_run``."""
    refuse_at_exit()
    request_id = uuid.uuid4().hex if request_id is None else text("request_id", request_id)
    with identified(request_id):
        message: messages.Message = {
            "request_id": request_id,
            "labels": labels_of(run=text("run", run), replica=None, policy_version=None, step=None),
            "method": messages.method_to_message(method),
        }
        return Call("DeclareRun", _read, timeout, request_id, message=message)


def _read(message: messages.Message) -> RunDeclaration:
    return RunDeclaration(message["method"], tuple(message.get("warnings", ())))
