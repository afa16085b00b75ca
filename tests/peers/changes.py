"""Names of code that differ between two copies of a peer: what a new release may answer otherwise.

Compares syntax trees, so that comments, docstrings, annotations, help texts and layout are no
difference.
"""

from __future__ import annotations

import ast
import hashlib
import pathlib
from collections.abc import Iterator

from watched import WATCHED


def changes(peer: str, older: pathlib.Path, newer: pathlib.Path) -> list[str]:
    """Returns "path:Class.member" of all watched code that is not the same in both folders.

    Raises:
        LookupError: Watched code is in neither: it has moved.
    """
    found = []
    for path, names in WATCHED[peer].items():
        before, after = _members(older / path, names), _members(newer / path, names)
        for name in names or ("",):
            if not any(_is_in(one, name) for one in before.keys() | after.keys()):
                raise LookupError(f"neither {older} nor {newer} has {path} with {name or 'code'}")
        found += [
            f"{path}:{name}"
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
    return found


def digest(folder: pathlib.Path, place: str) -> str:
    """Returns eight digits of the code of "path:Class.member"; of absent code those of nothing."""
    path, _, name = place.partition(":")
    code = _members(folder / path, (name,)).get(name, "")
    return hashlib.sha256(code.encode()).hexdigest()[:8]


def _members(path: pathlib.Path, names: tuple[str, ...] | None) -> dict[str, str]:
    """Returns the tree of each watched name, as text; of an absent file none."""
    if not path.is_file():
        return {}
    module = ast.parse(path.read_text())
    return {
        name: ast.dump(_Plain().visit(node))
        for name, node in _named(module.body, "")
        if names is None or any(_is_in(name, one) for one in names)
    }


def _is_in(name: str, watched: str) -> bool:
    return not watched or name == watched or name.startswith(f"{watched}.")


def _named(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            head = ast.Tuple([*node.bases, *node.decorator_list], ast.Load())
            yield f"{prefix}{node.name}", head
            yield from _named(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            yield prefix + ast.unparse(node.target), node
        elif isinstance(node, ast.Assign):
            yield prefix + ast.unparse(node.targets[0]), node
        elif isinstance(node, ast.If | ast.Try | ast.For | ast.With):
            yield f"{prefix}{type(node).__name__.lower()} {ast.unparse(node)[:40]!r}", node


class _Plain(ast.NodeTransformer):
    """Removes what computes nothing: docstrings, annotations, help texts of dataclass fields."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):
            return ast.Pass()
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "metadata" else self.generic_visit(node)
