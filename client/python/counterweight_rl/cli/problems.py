"""Errors as sentences."""

from __future__ import annotations

import os
import re

from counterweight_rl.errors import InvalidRequestError

# The distributions of [cli] by the module that each brings.
_EXTRA = {
    "click": "click",
    "rich": "rich",
    "pyarrow": "pyarrow",
    "matplotlib": "matplotlib",
    "yaml": "PyYAML",
}


class InputError(Exception):
    """A sentence about a wrong argument or file: exit code 2."""


class FailureError(Exception):
    """A sentence about anything else: exit code 1."""


def needs_extra(error: ModuleNotFoundError) -> str:
    """The sentence for a module of ``[cli]`` that is missing.

    Raises:
        ModuleNotFoundError: The module belongs to something else.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA:
        raise error
    return f'this needs {_EXTRA[module]}: pip install "counterweight-rl[cli]"'


def invalid(error: Exception, path: str | os.PathLike[str]) -> InputError:
    """The sentence for a batch of a file that was refused; all fields that are wrong."""
    if not isinstance(error, InvalidRequestError) or not error.violations:
        # A block or a parameter is no part of the file.
        return InputError(str(error) if str(error).startswith("method") else f"{path}: {error}")
    told = []
    for each in error.violations:
        of_method = each.field.startswith(("method", "run", "policy_version", "non_finite"))
        # The library's advice is for Python.
        text = each.description.replace("client.list_methods()", "counterweight methods")
        text = text.removeprefix(f"{each.field} ")
        text = re.sub(r'non_finite="?(drop|neutralize)"?', r"--non-finite \1", text)
        told.append(f"{each.field if of_method else f'{path}: {each.field}'}: {text}")
    return InputError("; ".join(told))
