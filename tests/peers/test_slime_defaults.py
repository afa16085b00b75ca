"""Defaults of slime: an empty block, and its command line's own, answer as its trainer."""

from __future__ import annotations

import defaults
import megatron_defaults
import pytest
from test_slime_hook import answer, arguments
from test_slime_hook import trainer as trainer  # a fixture

pytestmark = pytest.mark.compares("policy_loss_function")


@pytest.mark.parametrize("draw", megatron_defaults.DRAWS)
@pytest.mark.parametrize("name", megatron_defaults.SAID)
def test_loss(name: str, draw: str) -> None:
    said = megatron_defaults.SAID[name]
    own = {**defaults.block(), **said}
    megatron_defaults.check(answer(arguments(**own, draw=draw)), said, draw)
