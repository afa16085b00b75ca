"""Defaults in a checkout's sources, where its objects need engines and clusters."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import releases

_ABSENT = object()


def of_parser(path: str) -> dict[str, Any]:
    """Returns the literal defaults of a command line's arguments, by their destinations.

    Args:
        path: Of the file that adds them; a later argument of a name replaces an earlier one.
    """
    found: dict[str, Any] = {}
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(
            ("add_argument", "reset_arg")
        ):
            continue
        flags = [_literal(one) for one in node.args]
        names = [one for one in flags if isinstance(one, str) and one.startswith("--")]
        options = {one.arg: _literal(one.value) for one in node.keywords}
        if not names:
            continue
        of_action = {"store_true": False, "store_false": True}.get(options.get("action"))
        default = options.get("default", of_action)
        if default is not _ABSENT:
            found[options.get("dest", names[0][2:].replace("-", "_"))] = default
    return found


def of_class(path: str, name: str, constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the defaults of a dataclass's own fields: literals, also in ``field(default=)``.

    Args:
        path: Of its file.
        name: Of the class.
        constants: Values of names that defaults have.

    Raises:
        LookupError: The file has no such class.
    """
    for node in _tree(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            break
    else:
        raise LookupError(f"{path} has no {name}")
    found = {}
    for member in node.body:
        if not isinstance(member, ast.AnnAssign) or member.value is None:
            continue
        value: ast.expr = member.value
        if isinstance(value, ast.Call):
            given = [one.value for one in value.keywords if one.arg == "default"]
            if not given:
                continue
            value = given[0]
        if isinstance(value, ast.Name):
            default = (constants or {}).get(value.id, _ABSENT)
        else:
            default = _literal(value)
        if default is not _ABSENT:
            found[ast.unparse(member.target)] = default
    return found


def fields_of(paths: Sequence[str], name: str) -> set[str]:
    """Returns the names of a dataclass's fields, and of its bases'.

    Args:
        paths: Of the files that the classes are in.
        name: Of the class.

    Raises:
        LookupError: No file has such a class.
    """
    for path in paths:
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                own = {ast.unparse(m.target) for m in node.body if isinstance(m, ast.AnnAssign)}
                return own.union(*(fields_of(paths, ast.unparse(one)) for one in node.bases))
    raise LookupError(f"{', '.join(paths)} have no {name}")


def _tree(path: str) -> ast.Module:
    return ast.parse((releases.folder() / path).read_text())


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _ABSENT
