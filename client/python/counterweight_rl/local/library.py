"""libcounterweight by ctypes: server/embedded/counterweight.h, which documents it."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import pathlib
from typing import Any

from counterweight_rl.errors import CounterweightError
from counterweight_rl.status import StatusCode

VARIABLE = "COUNTERWEIGHT_LIBRARY"
"""The environment variable that names the library's file."""
ENTRY_POINTS = "counterweight_rl.library"
"""The group of entry points by which another distribution, such as counterweight-rl-cu13, brings a
library: functions without arguments that return its file."""
_NAME = "libcounterweight.so"
_ABI_VERSION = 1
PROTOBUF, JSON = 0, 1
"""The forms of requests and answers."""
HOST, CUDA = 0, 1
"""The memory of a request's tensors and outputs."""
LOSS, TOKENS, NON_FINITE_TOKENS, POSITIVE_LOG_PROBS, DECODE_SECONDS = range(5)
FIRST_RULE = 7
"""The places of a run's numbers."""
ABSENT_BITS = 0x7FF8C0DE00000000
"""CW_ABSENT_BITS."""
MAX_INPUTS = MAX_OUTPUTS = 8
SHORTEST_SECONDS = 1e-9
"""A limit: 0 is none to the library."""

Place = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_size_t
)
"""cw_place."""


class Options(ctypes.Structure):
    """cw_options."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("backend", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("max_tokens", ctypes.c_int64),
        ("max_sequences", ctypes.c_int64),
    )


class Bytes(ctypes.Structure):
    """cw_bytes."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))

    data: int | None
    size: int

    def copy(self) -> bytes:
        """A copy of them."""
        return ctypes.string_at(self.data, self.size) if self.data else b""


def bytes_of(message: bytes) -> Bytes:
    """Returns the address of a message, which must outlive it."""
    return Bytes(ctypes.cast(ctypes.c_char_p(message), ctypes.c_void_p).value, len(message))


class Tensor(ctypes.Structure):
    """cw_tensor."""

    _fields_ = (("role", ctypes.c_int32), ("dtype", ctypes.c_int32))


class Signature(ctypes.Structure):
    """cw_signature."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("inputs", Tensor * MAX_INPUTS),
        ("num_inputs", ctypes.c_size_t),
        ("outputs", Tensor * MAX_OUTPUTS),
        ("num_outputs", ctypes.c_size_t),
        ("rules", ctypes.POINTER(ctypes.c_char_p)),
        ("num_rules", ctypes.c_size_t),
        ("metrics", ctypes.POINTER(ctypes.c_char_p)),
        ("num_metrics", ctypes.c_size_t),
        ("num_numbers", ctypes.c_size_t),
        ("num_sums", ctypes.c_size_t),
        ("num_maxima", ctypes.c_size_t),
    )


class Request(ctypes.Structure):
    """cw_request."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("format", ctypes.c_int32),
        ("message", Bytes),
        ("tensors", ctypes.POINTER(Bytes)),
        ("num_tensors", ctypes.c_size_t),
        ("place", Place),
        ("context", ctypes.c_void_p),
        ("timeout_seconds", ctypes.c_double),
        ("stop", ctypes.POINTER(ctypes.c_int32)),
        ("memory", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
    )


class Answer(ctypes.Structure):
    """cw_answer."""

    _fields_ = (
        ("message", Bytes),
        ("tensors", ctypes.POINTER(Bytes)),
        ("num_tensors", ctypes.c_size_t),
    )


class Parts(ctypes.Structure):
    """cw_parts."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("part_of_row", ctypes.c_void_p),
        ("num_parts", ctypes.c_size_t),
    )


class Partial(ctypes.Structure):
    """cw_partial."""

    _fields_ = (
        ("sums", ctypes.c_void_p),
        ("num_sums", ctypes.c_size_t),
        ("maxima", ctypes.c_void_p),
        ("num_maxima", ctypes.c_size_t),
    )


class Error(ctypes.Structure):
    """cw_error."""

    _fields_ = (
        ("code", ctypes.c_int32),
        ("message", ctypes.c_char_p),
        ("violations", Bytes),
    )


class Receipt(ctypes.Structure):
    """cw_receipt."""

    _fields_ = (
        ("fingerprint", ctypes.c_uint64),
        ("tokens", ctypes.c_int64),
        ("changed_tokens", ctypes.c_int64),
        ("dropped_tokens", ctypes.c_int64),
        ("weight_excess", ctypes.c_double),
    )


_ANSWER = ctypes.POINTER(ctypes.POINTER(Answer))
# Each function with its result and its arguments.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cw_open": (ctypes.c_int, (ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p))),
    "cw_correct": (ctypes.c_int, (ctypes.c_void_p, ctypes.POINTER(Request), _ANSWER)),
    "cw_diagnose": (ctypes.c_int, (ctypes.c_void_p, ctypes.POINTER(Request), _ANSWER)),
    "cw_sum_parts": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Parts), _ANSWER),
    ),
    "cw_sums": (
        ctypes.c_int,
        (ctypes.POINTER(Answer), ctypes.c_int32, ctypes.POINTER(Bytes)),
    ),
    "cw_prepare": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(Request), ctypes.POINTER(ctypes.c_void_p)),
    ),
    "cw_signature_of": (ctypes.POINTER(Signature), (ctypes.c_void_p,)),
    # A cw_batch as packed bytes.
    "cw_run": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)),
    "cw_describe": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.POINTER(ctypes.c_double), ctypes.c_int32, _ANSWER),
    ),
    "cw_discard": (None, (ctypes.c_void_p,)),
    "cw_merge_arrays": (
        ctypes.c_int,
        (
            ctypes.c_void_p,
            Bytes,
            ctypes.c_int32,
            ctypes.POINTER(Partial),
            ctypes.c_size_t,
            _ANSWER,
        ),
    ),
    "cw_declare_run": (ctypes.c_int, (ctypes.c_void_p, Bytes, ctypes.c_int32, _ANSWER)),
    "cw_group_advantages": (ctypes.c_int, (ctypes.c_void_p, Bytes, ctypes.c_int32, _ANSWER)),
    "cw_add_receipt": (
        None,
        (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.POINTER(Receipt),
        ),
    ),
    "cw_list_methods": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int32, _ANSWER)),
    "cw_server_info": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int32, _ANSWER)),
    "cw_free": (None, (ctypes.POINTER(Answer),)),
    "cw_last_error": (ctypes.POINTER(Error), ()),
    "cw_close": (None, (ctypes.c_void_p,)),
}


@functools.cache
def load() -> Any:
    """The library, found and loaded once.

    Raises:
        CounterweightError: There is none, or it is another version's; the message has the places.
    """
    path = find()
    try:
        library = ctypes.CDLL(str(path))
        found = library.cw_abi_version()
        missing = [name for name in _FUNCTIONS if not hasattr(library, name)]
    except (OSError, AttributeError) as error:
        raise _unusable(f"{path} cannot be loaded: {error}") from error
    if found != _ABI_VERSION:
        raise _unusable(
            f"{path} has the binary interface {found}, and this package needs {_ABI_VERSION}; "
            "take both from one version"
        )
    if missing:
        raise _unusable(f"{path} lacks {missing[0]}; take it and this package from one version")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def find() -> pathlib.Path:
    """The library's file.

    Raises:
        CounterweightError: There is none; the message has the places.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.path.isfile(named):
            raise _unusable(f"{VARIABLE} names {named}, which is no file")
        return pathlib.Path(named)
    entries = importlib.metadata.entry_points(group=ENTRY_POINTS)
    if entries:
        return _file_of(min(entries, key=lambda each: (each.name, each.value)))
    package = pathlib.Path(__file__).resolve().parent.parent
    file = package / _NAME
    # In a checkout the package is client/python/counterweight_rl.
    checkout = package.parent.parent.parent
    in_checkout = (checkout / ".ci/build").is_file()
    built = checkout / "build/release" / _NAME
    for place in [file, *([built] if in_checkout else [])]:
        if place.is_file():
            return place
    if in_checkout:
        how = f"{built} is missing: build it (.ci/build release counterweight_embedded)"
    else:
        how = (
            f"{file} is missing, for only the Python sources are installed; the wheel has it too "
            "(`make wheel` in a checkout, then pip install dist/counterweight_rl-*.whl)"
        )
    raise _unusable(f'a target "local:" needs {_NAME}, and {how}, or name one in {VARIABLE}')


def _file_of(entry: importlib.metadata.EntryPoint) -> pathlib.Path:
    try:
        path = pathlib.Path(entry.load()())
    except Exception as error:
        raise _unusable(f"the entry point {entry.value} cannot be loaded: {error}") from error
    if not path.is_file():
        raise _unusable(f"the entry point {entry.value} names {path}, which is no file")
    return path


def _unusable(why: str) -> CounterweightError:
    return CounterweightError(why, code=StatusCode.FAILED_PRECONDITION)
