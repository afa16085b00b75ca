"""The method of a command line: a preset with parameters, or another system's block."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from counterweight_rl.cli.problems import InputError
from counterweight_rl.config import Dialect, Method, Preset
from counterweight_rl.dialect_structs import MAX_VALUES


def read_method(
    method: str | None,
    parameters: Iterable[str],
    dialect: str | None,
    block: pathlib.Path | None,
    release: str | None,
) -> Method:
    """Reads the flags of that name.

    Raises:
        InputError: They contradict each other, or a file cannot be read.
        ModuleNotFoundError: YAML needs PyYAML.
    """
    if (method is None) == (dialect is None):
        raise InputError("needs either --method or --dialect")
    if dialect is not None:
        if list(parameters):
            raise InputError("--parameter goes with --method, not with --dialect")
        read = {} if block is None else _read_block(block)
        return Dialect(dialect, read, release=release or "")
    if block is not None or release is not None:
        raise InputError("--block and --release go with --dialect, not with --method")
    assert method is not None
    given: dict[str, Any] = dict(_parameter(text, "--parameter") for text in parameters)
    return Preset(method, allow_unknown=True, **given)  # The server may be newer.


def read_methods(text: str) -> dict[str, Preset]:
    """Reads ``--methods``: names with commas between them, ``NAME:PARAMETER=NUMBER`` for others.

    Returns:
        Presets by their text; one that is there twice only once.

    Raises:
        InputError: There is none, or a parameter is wrong.
    """
    read: dict[str, Preset] = {}
    for each in (part.strip() for part in text.split(",")):
        name, *parameters = (part.strip() for part in each.split(":"))
        if not each or each in read:
            continue
        if not name:
            raise InputError(f"--methods {each}: needs a name before the first colon")
        given: dict[str, Any] = {}
        for parameter in parameters:
            key, number = _parameter(parameter, f"--methods {each}: a parameter")
            if key in given:
                raise InputError(f"--methods {each}: {key} is given twice")
            given[key] = number
        read[each] = Preset(name, allow_unknown=True, **given)
    if not read:
        raise InputError("--methods needs at least one name")
    return read


def _parameter(text: str, subject: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        # Preset has arguments of these names that are no numbers.
        if not name.isidentifier() or name in ("policy_loss", "kl_penalty", "allow_unknown"):
            raise ValueError
        return name, float(number)
    except ValueError:
        raise InputError(f"{subject} must be NAME=NUMBER; got {text!r}") from None


def _read_block(path: pathlib.Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--block {path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        try:
            read = json.loads(text, object_pairs_hook=_mapping)
        except json.JSONDecodeError:
            read = _read_yaml(text)
    except RecursionError:
        raise InputError(f"--block {path}: is nested too deep") from None
    except ValueError as error:
        raise InputError(f"--block {path}: {error}") from None
    if not isinstance(read, dict):
        raise InputError(f"--block {path}: must be a mapping of names to values")
    return read


def _mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Returns the pairs as a mapping.

    Raises:
        ValueError: A key is there twice: parsers use either value, and readers the first one.
    """
    made: dict[Any, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key!r} is given twice in a mapping")
        made[key] = value
    return made


def _read_yaml(text: str) -> Any:
    """Reads YAML.

    Raises:
        ValueError: It is none, or has a key twice.
    """
    import yaml

    checked: set[int] = set()

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses what PyYAML takes in silence, and merges that grow without end."""

        def flatten_mapping(self, node: Any) -> None:
            # Again for a node that is merged elsewhere, which by then has merged keys.
            if id(node) not in checked:
                checked.add(id(node))
                keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                _mapping([(key.value, None) for key in keys])
            super().flatten_mapping(node)
            if len(node.value) > MAX_VALUES:
                raise ValueError(f"a mapping has more than {MAX_VALUES} keys")

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f" in line {where.line + 1}"
        raise ValueError(f"is neither JSON nor YAML{line}") from error
