"""``counterweight_rl.diagnose``: a batch is examined in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterweight_rl import calls, diagnose_call
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.client import Client
from counterweight_rl.diagnosis import Diagnosis

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from counterweight_rl.diagnose_call import DiagnoseArguments


@calls.takes(diagnose_call.ARGUMENTS, of=diagnose_call.ARGUMENTS)
def diagnose(**call: Unpack[DiagnoseArguments[ArrayT]]) -> Diagnosis:
    """Examines one batch for faults of its data in this process, and names each.

    Arguments and errors are those of ``Client.diagnose``; ``print`` shows the result.
    """
    with Client("local:") as client:
        return client.diagnose(**call)
