"""A pytest plugin that only makes a peer's checkout importable: what ``swap`` is compared with."""

from __future__ import annotations

import os
import pathlib

import releases

releases.activate(
    releases.PEER,
    pathlib.Path(os.environ["COUNTERWEIGHT_PEER_CHECKOUT"]).resolve(),
)
