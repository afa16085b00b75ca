"""Functions and statements taken by name out of the files of a git repository, at one commit.

Nothing is imported from the repository: globals of a function are other functions of the same
commit, torch and numpy, and stand-ins that a caller names.
"""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

_BASE = {"np": np, "torch": torch, "defaultdict": defaultdict}


class Source:
    """A commit of a clone.

    Args:
        clone: Folder of a git repository, bare or with a work tree.
        repository: OWNER/NAME.
        commit: All 40 digits.
        wide: Reads float64 where a file has float32.
    """

    def __init__(self, clone: Path, repository: str, commit: str, *, wide: bool = False) -> None:
        self._clone = clone
        self.repository = repository
        self.commit = commit
        self._wide = wide

    def tree(self, path: str) -> ast.AST:
        """Parses a file."""
        command = ["git", "-C", str(self._clone), "show", f"{self.commit}:{path}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        tree = ast.parse(text)
        return _Wider().visit(tree) if self._wide else tree

    def names(self, path: str, *names: str, **others: Any) -> dict[str, Any]:
        """Returns functions, methods and classes of a file, with `others` as their other globals.

        Decorators that are not torch's, such as those that register a function, are left out.
        Annotations are not evaluated.
        """
        space = {**_BASE, **others}
        for name in names:
            node = _named(self.tree(path), name)
            if isinstance(node, ast.FunctionDef):
                ours = [d for d in node.decorator_list if ast.unparse(d).startswith("torch.")]
                node.decorator_list = ours
            execute([node], path, space)
        return {name: space[name] for name in names}

    def statements(self, path: str, function: str, first: str, last: str) -> list[ast.stmt]:
        """Returns consecutive statements of a function's body.

        Args:
            path: The file's.
            function: Name of the function or method.
            first: The beginning of the first statement, as ast.unparse writes it.
            last: The same of the last one.
        """
        body: list[ast.stmt] = _named(self.tree(path), function).body
        texts = [ast.unparse(node) for node in body]
        begin = _only(texts, first)
        end = _only(texts, last)
        return body[begin : end + 1]


class _Wider(ast.NodeTransformer):
    """Replaces torch.float32, torch.float and the method float by float64's."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
        if of_torch and node.attr in {"float", "float32"}:
            node.attr = "float64"
        elif node.attr == "float":
            node.attr = "double"
        return node


def execute(body: list[ast.stmt], path: str, space: dict[str, Any]) -> None:
    """Runs statements; annotations stay text."""
    module = ast.Module(body, type_ignores=[])
    flags = annotations.compiler_flag
    exec(compile(module, path, "exec", flags, dont_inherit=True), space)


def _named(tree: ast.AST, name: str) -> Any:
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} functions or classes have the name {name}, not one")
    return found[0]


def _only(texts: list[str], beginning: str) -> int:
    found = [i for i, text in enumerate(texts) if text.startswith(beginning)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} statements begin with {beginning}, not one")
    return found[0]
