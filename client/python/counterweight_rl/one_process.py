"""Objects that belong to the process that makes them."""

from __future__ import annotations

from typing import NoReturn


class OneProcess:
    """Refuses to be pickled or copied by a sentence that says what to do."""

    def __reduce__(self) -> NoReturn:
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        raise TypeError(
            f"a {kind} cannot be pickled or copied, because its connections and threads belong to "
            "this process: make one where it is used, in the actor, worker or child process"
        )
