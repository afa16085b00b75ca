"""Functions and classes of a checkout, without the modules that they stand in.

Some peers' modules import engines, command lines and clusters at their head. Definitions are taken
from the sources by name and executed beside each other.
"""

from __future__ import annotations

import ast
import os
import pathlib
import sys
from types import ModuleType
from typing import Any

import releases


def definitions(module: str, wanted: dict[str, tuple[str, ...]], **namespace: Any) -> ModuleType:
    """Returns a module with the definitions.

    Args:
        module: The new module's name.
        wanted: Names of functions and classes by their file in the checkout; an earlier file's are
            defined first.
        namespace: Other names that they use.

    Raises:
        LookupError: A file has no such definition at its top.
    """
    checkout = pathlib.Path(os.environ[releases.CHECKOUT_VARIABLE])
    made = sys.modules[module] = ModuleType(module)  # dataclasses look their module up
    vars(made).update(namespace)
    for path, names in wanted.items():
        tree = ast.parse((checkout / path).read_text())
        found = [
            node
            for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names
        ]
        missing = set(names) - {node.name for node in found}
        if missing:
            raise LookupError(f"{path} has no {', '.join(sorted(missing))}")
        code = ast.Module([_ANNOTATIONS, *found], type_ignores=[])
        exec(compile(code, str(checkout / path), "exec"), vars(made))
    return made


_ANNOTATIONS = ast.parse("from __future__ import annotations").body[0]
