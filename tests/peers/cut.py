"""Definitions of a release or a checkout, without the modules that they stand in.

Some peers' modules import engines, command lines and clusters at their head. Definitions are taken
from the sources by name and executed beside each other.
"""

from __future__ import annotations

import ast
import sys
from types import ModuleType
from typing import Any

import releases

_ANNOTATIONS = ast.parse("from __future__ import annotations").body[0]


def definitions(module: str, wanted: dict[str, tuple[str, ...]], **namespace: Any) -> ModuleType:
    """Returns a module with the definitions.

    Args:
        module: The new module's name.
        wanted: Names of functions, classes and constants by their file; an earlier file's are
            defined first. "Class.method": the class without bases, decorators and other members.
        namespace: Other names that they use.

    Raises:
        LookupError: A file has no such definition at its top.
    """
    folder = releases.folder()
    made = sys.modules[module] = ModuleType(module)  # dataclasses look their module up
    vars(made).update(namespace)
    for path, names in wanted.items():
        tree = ast.parse((folder / path).read_text())
        found: list[ast.stmt] = []
        missing = set(names)
        for node in tree.body:
            part, of_part = _part(node, set(names))
            if of_part:
                found.append(part)
                missing -= of_part
        if missing:
            raise LookupError(f"{path} has no {', '.join(sorted(missing))}")
        code = ast.fix_missing_locations(ast.Module([_ANNOTATIONS, *found], type_ignores=[]))
        exec(compile(code, str(folder / path), "exec"), vars(made))
    return made


def _part(node: ast.stmt, names: set[str]) -> tuple[ast.stmt, set[str]]:
    """Returns what is wanted of a statement, and the names that this defines."""
    if isinstance(node, ast.Assign):
        return node, names & {ast.unparse(target) for target in node.targets}
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node, set()
    if node.name in names or isinstance(node, ast.FunctionDef):
        return node, names & {node.name}
    methods = {
        f"{node.name}.{one.name}": one for one in node.body if isinstance(one, ast.FunctionDef)
    }
    chosen: list[ast.stmt] = [one for name, one in methods.items() if name in names]
    return ast.ClassDef(node.name, [], [], chosen, []), names & methods.keys()
