"""Finds ``counterweight-server``."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig

from counterweight_rl.cli.problems import FailureError

NAME = "counterweight-server"
VARIABLE = "COUNTERWEIGHT_SERVER"
"""The environment variable that names the server's file."""


def find_server() -> pathlib.Path:
    """The file that the variable names, else the wheel's, else PATH's, else the checkout's build.

    Raises:
        FailureError: There is none; the message names the places that were searched.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise FailureError(f"{VARIABLE} names {named}, which is no program")
        return pathlib.Path(named)
    scripts = {
        pathlib.Path(sysconfig.get_path("scripts")),
        # Where pip install --user puts them.
        pathlib.Path(sysconfig.get_path("scripts", "posix_user")),
        pathlib.Path(sys.executable).parent,
    }
    places = [folder / NAME for folder in sorted(scripts)]
    on_path = shutil.which(NAME)
    if on_path:
        places.append(pathlib.Path(on_path))
    # In a checkout this file is in client/python/counterweight_rl/cli.
    places.append(pathlib.Path(__file__).resolve().parents[4] / "build/release" / NAME)
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise FailureError(
        f"found no {NAME}: the wheel of `make wheel` has it; else put it on PATH or name it in "
        f"{VARIABLE}"
    )
