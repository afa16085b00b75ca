"""Calls of ``correct`` that repeat an earlier one with other arrays, for a server.

``local.prepared_calls`` has the same for the engine in this process. The first calls of a kind go
the whole way; later ones are framed by a template of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from counterweight_rl import calls, calm_bound
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.errors import InvalidRequestError
from counterweight_rl.local.plain_calls import Key, Kinds, keep, key_of
from counterweight_rl.one_process import refuse_at_exit
from counterweight_rl.result import Result
from counterweight_rl.transport.template import Template

_MOST_TEMPLATES = 64
_MOST_SEEN = 1024


class PreparedCalls:
    """The templates of one client, by what their calls have in common; bounded. Thread-safe."""

    def __init__(self) -> None:
        """Prepares nothing yet."""
        # Single operations of a dict are atomic.
        self._templates: dict[Key, Template] = {}
        self._seen: dict[Key, None] = {}
        self._kinds = Kinds()

    def key(self, call: Mapping[str, Any]) -> Key | None:
        """Returns what a call of ``correct`` has in common with others of its kind; None: none."""
        refuse_at_exit()
        kind = self._kinds.of(call.get(MASK))
        return None if kind is None else key_of(call, kind)

    def call(self, key: Key | None, call: Mapping[str, Any]) -> calls.Call[Result[Any]] | None:
        """Returns a call by a template; None: it has to go the whole way."""
        template = None if key is None else self._templates.get(key)
        kind = None if template is None else self._kinds.of(call[MASK])
        if template is None or kind is None:
            return None
        try:
            return template.call(call, kind)
        except (TypeError, InvalidRequestError):
            return None  # refused once more, with the request's id

    def learn(
        self, key: Key | None, call: Mapping[str, Any], whole: calls.Call[Result[Any]]
    ) -> None:
        """Makes a template of an answered call if it is not the first of its kind."""
        # The wire is little-endian, and arrays have this machine's order.
        if key is None or key in self._templates or sys.byteorder != "little":
            return
        # Its answers have sums, which templates do not read.
        if call.get("partial_sums"):
            return
        if whole.correction is not None and calm_bound.is_in(whole.correction.head["method"]):
            return  # nor bounds
        if key not in self._seen:
            keep(self._seen, key, None, _MOST_SEEN)
            return
        kind = self._kinds.of(call[MASK])
        if kind is not None and whole.correction is not None:
            template = Template(call, kind, whole.correction)
            keep(self._templates, key, template, _MOST_TEMPLATES)
