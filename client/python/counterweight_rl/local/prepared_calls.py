"""Calls of ``correct`` that repeat an earlier one with other arrays.

The first calls of a kind go the whole way, which knows every type and finds every error. From the
second on the library has a plan of them; then only what may differ is read: shapes and addresses.
What is not plain goes the whole way again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.correction import Correction
from counterweight_rl.errors import InvalidRequestError
from counterweight_rl.local import library
from counterweight_rl.local.plain_calls import (
    Arrays,
    Key,
    Kinds,
    Known,
    Layout,
    has_plain_settings,
    keep,
    key_of,
    read_inputs,
    read_layout,
)
from counterweight_rl.local.plan import Plan
from counterweight_rl.result import Result
from counterweight_rl.status import StatusCode

_INVALID_ARGUMENT = StatusCode.INVALID_ARGUMENT.value[0]
_HOST = (library.HOST, 0, 0)
_MOST_PLANS = 64
_MOST_SEEN = 1024


class PreparedCalls:
    """The plans of one engine, by what they were prepared from; bounded. Thread-safe."""

    def __init__(
        self,
        functions: Any,
        handle: Any,
        failure: Callable[[], Exception],
        *,
        device: int | None = None,
    ) -> None:
        """Prepares nothing yet.

        Args:
            functions: The library.
            handle: The engine's, a cw_handle.
            failure: Returns the error of this thread's last call.
            device: The CUDA device on which the engine reads and writes tensors; None: on none.
        """
        self._functions = functions
        self._handle = handle
        self._failure = failure
        # Single operations of a dict are atomic.
        self._plans: dict[Key, tuple[Plan, list[bool]]] = {}
        self._seen: dict[Key, None] = {}
        self._kinds = Kinds(device)

    def known(self, call: Mapping[str, Any]) -> Known | None:
        """Reads what a call of ``correct`` has in common with others; None: it has no plan.

        To be called in the thread whose current stream is the caller's.
        """
        mask = call.get(MASK)
        arrays = self._kinds.of(mask)
        key = None if arrays is None else key_of(call, arrays)
        if arrays is None or key is None:
            return None
        return Known(key, arrays, arrays.stream(mask))

    def has(self, known: Known) -> bool:
        """Returns whether there is a plan."""
        return known.key in self._plans

    def run(self, known: Known, call: Mapping[str, Any], stop: int) -> Result[Any] | None:
        """Answers a call by a plan; None: it has to go the whole way.

        Args:
            known: What was read of it.
            call: The arguments of ``correct``.
            stop: Address of an int32 that ends the call.

        Raises:
            CounterweightError: The call failed for another reason than its arguments.
        """
        found = self._plans.get(known.key)
        if found is None:
            return None
        try:
            return self._answer(call, known, *found, stop)
        except (TypeError, InvalidRequestError):
            return None  # refused once more, with the request's id

    def learn(
        self,
        known: Known,
        call: Mapping[str, Any],
        correction: Correction[Any],
        timeout: float | None,
    ) -> None:
        """Makes a plan of an answered call if it is not the first of its kind."""
        key, arrays, _ = known
        if key not in self._seen:
            keep(self._seen, key, None, _MOST_SEEN)
            return
        try:
            plan = Plan(self._functions, self._handle, correction, timeout)
        except ValueError:
            return
        direct = [arrays.is_direct(name, call[name]) for name in plan.inputs]
        keep(self._plans, key, (plan, direct), _MOST_PLANS)

    def close(self) -> None:
        """Forgets the plans; runs under way keep theirs."""
        self._plans.clear()

    def _answer(
        self, call: Mapping[str, Any], known: Known, plan: Plan, direct: list[bool], stop: int
    ) -> Result[Any] | None:
        kind, stream = known.arrays, known.stream
        layout = read_layout(call, call[MASK].shape)
        if layout is None or not has_plain_settings(call):
            return None
        kept: list[Any] = []  # copies that the library reads
        inputs = read_inputs(call, kind, plan.inputs, direct, layout, kept)
        outputs = None if inputs is None else _Outputs.make(call, kind, plan, layout)
        if inputs is None or outputs is None:
            return None
        numbers = plan.numbers()
        # CUDA need not be asked where tensors are, because torch says that it is the device.
        place = _HOST if stream is None else (library.CUDA, 1, int(stream.cuda_stream))
        code = plan.run(layout.shape, inputs, outputs.places, numbers, stop, place)
        if code == _INVALID_ARGUMENT:
            return None  # the whole way names the argument
        if code:
            raise self._failure()
        return plan.result(numbers, outputs.finish(kind), call.get("request_id"))


@dataclass
class _Outputs:
    """Memory for the outputs of one run.

    Attributes:
        places: The address of each output of the plan; 0: not wanted.
        arrays: The memory by name.
        conversions: By name, how the output is made of its memory.
        given: The caller's destinations.
    """

    places: list[int]
    arrays: dict[str, Any]
    conversions: dict[str, Callable[[Any], Any]]
    given: Mapping[str, Any]

    @classmethod
    def make(
        cls, call: Mapping[str, Any], kind: Arrays, plan: Plan, layout: Layout
    ) -> _Outputs | None:
        """Makes them, but those that the caller gave; None: one of these is not plain."""
        mask, given = call[MASK], call.get("out") or {}
        made = cls([], {}, {}, given)
        for name in plan.outputs:
            if name not in plan.wanted:
                made.places.append(0)
                continue
            shape = layout.of(name)
            place: int | None
            if given and name in given:
                array, place = given[name], kind.take(name, given[name], mask, shape)
                if place is None:
                    return None
            else:
                array, place, conversion = kind.make(name, mask, shape)
                if conversion is not None:
                    made.conversions[name] = conversion
            made.arrays[name] = array
            made.places.append(place)
        return made if not given or made.arrays.keys() >= given.keys() else None

    def finish(self, kind: Arrays) -> dict[str, Any]:
        """Returns the outputs after a run."""
        for name, conversion in self.conversions.items():
            self.arrays[name] = conversion(self.arrays[name])
        for array in self.given.values():
            kind.wrote(array)
        return self.arrays
