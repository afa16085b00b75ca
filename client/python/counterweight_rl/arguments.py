"""Checks scalar arguments and lists of integers, so that errors name the argument.

Without them the words would be those of whatever reads the value first: protobuf, or the library.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any

import numpy as np

INT64 = (-(1 << 63), (1 << 63) - 1)
UINT64 = (0, (1 << 64) - 1)
UINT32 = (0, (1 << 32) - 1)
INT32 = (-(1 << 31), (1 << 31) - 1)


def text(name: str, value: Any) -> str:
    """Returns a string; of an enum's member that is one, its text.

    Raises:
        TypeError: It is none.
        ValueError: It has half of a surrogate pair, which UTF-8 cannot hold.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is no text that UTF-8 can hold: {error.reason}") from None
    return plain


def integer(name: str, value: Any, limits: tuple[int, int] = INT64) -> int:
    """Returns an int; a numpy integer is one, a bool is none.

    Raises:
        TypeError: It is none.
        ValueError: It is out of ``limits``, inclusive.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    least, largest = limits
    if not least <= number <= largest:
        raise ValueError(f"{name} must be from {least} to {largest}; got {shown(number)}")
    return number


def number(name: str, value: Any) -> float:
    """Returns a float; a bool is none, an array or a tensor of no dimensions is one.

    Raises:
        TypeError: It is no real number.
        ValueError: It is beyond the range of a float.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond the range of a float: {shown(value)}") from None


def boolean(name: str, value: Any) -> bool:
    """Returns a bool, which may be numpy's.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return bool(value)


def shown(value: Any) -> str:
    """Returns a value for a message, shortened; an int of any length takes no time."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    written = repr(value)
    return written if len(written) <= 80 else f"{written[:77]}..."


def items(name: str, values: Any, what: str) -> list[Any]:
    """Returns the elements of a sequence, a numpy array or a torch tensor.

    Raises:
        TypeError: It is none, has no order, or masks elements; ``what`` describes the argument.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a numpy masked array; pass its data")
    unordered = isinstance(values, (str, bytes, bytearray, Mapping, Set))
    if unordered or not (hasattr(values, "tolist") or isinstance(values, Iterable)):
        raise TypeError(f"{name} must be {what}, not {type(values).__name__}")
    if not hasattr(values, "tolist"):
        return list(values)
    try:
        listed = values.tolist()
    except Exception as error:  # a tensor without data, or on a lost device
        kind = type(values).__name__
        raise TypeError(f"{name} is a {kind} that cannot be read: {error}") from error
    if not isinstance(listed, list):
        raise TypeError(f"{name} must be {what}, not a single {type(values).__name__}")
    return listed


def int_list(name: str, values: Any) -> list[int]:
    """Converts a sequence of ints, a numpy array or a torch tensor to a list of ints.

    Raises:
        TypeError: It is none of these, or an element is not an int.
        ValueError: An element does not fit 64 bits.
    """
    what = "a one-dimensional sequence of integers"
    listed = items(name, values, what)
    # Builtins look at each of thousands of lengths in a tenth of the time.
    if {*map(type, listed)} == {int} and INT64[0] <= min(listed) and max(listed) <= INT64[1]:
        return listed
    if not all(_is_int(item) for item in listed):
        raise TypeError(f"{name} must be {what}")
    for i, item in enumerate(listed):
        if not INT64[0] <= item <= INT64[1]:
            integer(f"{name}[{i}]", item)
    return [int(item) for item in listed]


def float_list(name: str, values: Any) -> list[float]:
    """Converts a sequence of numbers, a numpy array or a torch tensor to a list of floats.

    Raises:
        TypeError: It is none of these, or an element is not a number.
        ValueError: An element is beyond the range of a float.
    """
    listed = items(name, values, "a one-dimensional sequence of numbers")
    return [number(f"{name}[{i}]", item) for i, item in enumerate(listed)]


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
