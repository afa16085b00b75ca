"""Reads the fenced blocks of a page, and runs them in order as a reader would."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from command_line import done
from server_process import REPOSITORY

# A block with a language, and what is printed: a block of text with only an empty line before it.
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: "python", "sh", another language, or empty.
        text: The block's lines.
        printed: The lines of the block of text beneath it; None if there is none.
        line: Its first line on the page.
    """

    language: str
    text: str
    printed: str | None
    line: int


def blocks(page: pathlib.Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], found[2], found[3], text.count("\n", 0, found.start()) + 2)
        for found in _BLOCK.finditer(text)
    ]


class Reader:
    """Runs blocks one after the other, with the names that earlier ones defined.

    Attributes:
        names: The names.
        ran: The blocks that were run.
        skipped: Those that need what is not installed.
    """

    def __init__(
        self, page: pathlib.Path, folder: pathlib.Path, places: Mapping[str, str], without: str = ""
    ) -> None:
        """Reads a page whose commands run in ``folder``.

        Args:
            page: The page.
            folder: Folder of its files.
            places: What stands on the page for an address or a file, and what it is here.
            without: A module that is not installed; blocks that import it are skipped.
        """
        self.names: dict[str, Any] = {"__name__": "page"}
        self.ran: list[Block] = []
        self.skipped: list[Block] = []
        self._page = page
        self._folder = folder
        self._places = places
        self._without = without

    def run_all(self) -> None:
        with _chdir(self._folder):
            for block in blocks(self._page):
                self._run(block)

    def _run(self, block: Block) -> None:
        where = f"{self._page.relative_to(REPOSITORY)}:{block.line}"
        if block.language == "python":
            if self._without and re.search(
                rf"^(?:import|from) .*{self._without}", block.text, re.M
            ):
                self.skipped.append(block)
                return
            printed = self._python(block, where)
        elif block.language == "sh":
            if "counterweight " in block.text and not importlib.util.find_spec("click"):
                self.skipped.append(block)
                return
            printed = "".join(self._command(line) for line in block.text.splitlines())
        else:
            return
        self.ran.append(block)
        assert printed == (block.printed or ""), f"{where} prints\n{printed}"

    def _python(self, block: Block, where: str) -> str:
        text = block.text
        for there, here in self._places.items():
            text = text.replace(there, here)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, where, "exec"), self.names)
        return out.getvalue()

    def _command(self, line: str) -> str:
        """Returns what a command of the package prints; checks that others exist."""
        words = shlex.split(line, comments=True)
        if words[:1] == ["counterweight"]:
            # The shell would write this output to the file.
            own, *others = line.split(" >")
            printed = done(*shlex.split(own)[1:])
            return "" if others else printed
        if words[:1] == ["make"]:
            targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.M)
            assert words[1] in targets
        else:
            assert words[0] in ("pip", "eval"), line
        return ""


@contextlib.contextmanager
def _chdir(folder: pathlib.Path) -> Iterator[None]:
    """contextlib.chdir, which Python 3.10 lacks."""
    before = pathlib.Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
