"""Objects that belong to the process that makes them, and to its time."""

from __future__ import annotations

import sys
from typing import NoReturn

from counterweight_rl.errors import CounterweightError
from counterweight_rl.status import StatusCode


class OneProcess:
    """Refuses to be pickled or copied, with a sentence that names the way out."""

    def __reduce__(self) -> NoReturn:
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        raise TypeError(
            f"a {kind} cannot be pickled or copied, because its connections and threads belong to "
            "this process: make one where it is used, in the actor, worker or child process"
        )


def refuse_at_exit() -> None:
    """Refuses the calls of a ``__del__`` at Python's end, where imports and waits are no more.

    Raises:
        CounterweightError: Python is ending.
    """
    if sys.is_finalizing():
        raise CounterweightError(
            "Python is ending, and calls need it: make them before, or in a function of atexit",
            code=StatusCode.FAILED_PRECONDITION,
        )
