"""The command line ``counterweight``, which needs the extra ``[cli]``.

Each module but ``commands`` is one command or a part of several; ``commands`` reads the arguments.
"""

from __future__ import annotations

import sys

from counterweight_rl.cli.problems import needs_extra

__all__ = ["main"]


def main() -> None:
    """Runs the command line; an error is one sentence.

    The exit code is 0 after success, 1 after a failure, 2 for a wrong command line or file.
    """
    try:
        from counterweight_rl.cli.commands import run
    except ModuleNotFoundError as error:
        sys.exit(f"counterweight: {needs_extra(error)}")
    sys.exit(run())
