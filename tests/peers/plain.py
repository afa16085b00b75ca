"""A pytest plugin that only makes a peer's checkout importable: what ``swap`` is compared with."""

from __future__ import annotations

import releases

releases.activate_checkout()
