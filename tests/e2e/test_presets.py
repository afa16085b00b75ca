"""The names that the Python client checks by itself are those of the library."""

from __future__ import annotations

import counterweight_rl as cw
from counterweight_rl import presets


def test_the_clients_presets_are_the_librarys(local_library: None) -> None:
    with cw.Client("local:") as client:
        methods = client.list_methods()
    listed = {method.name: tuple(each.name for each in method.parameters) for method in methods}
    assert listed == presets.PARAMETERS
