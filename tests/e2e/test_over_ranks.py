"""With ``over_ranks`` each rank's answer is that of one call with the rows of all."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from counterweight_rl import compat

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import openrlhf, verl  # noqa: E402
from counterweight_rl.hooks import slime  # noqa: E402
from over_ranks import BLOCKS, MODES, ROWS, answers  # noqa: E402

pytestmark = pytest.mark.usefixtures("local_library")
HERE = pathlib.Path(__file__).parent
WORLDS = (1, 2, 3)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    file = tmp_path_factory.mktemp("ranks") / "answers"
    script = HERE / "over_ranks.py"
    subprocess.run([sys.executable, script, file, *map(str, WORLDS)], check=True, timeout=500)
    made: dict[int, list[dict[str, Any]]] = pickle.loads(file.read_bytes())
    return made


@pytest.fixture(scope="module")
def whole() -> Iterator[dict[str, Any]]:
    compat.use(target="local:")
    yield answers(np.arange(ROWS))
    compat.use(None)


@pytest.mark.parametrize("name", [*BLOCKS, *MODES])
@pytest.mark.parametrize("world", WORLDS)
def test_each_rank_has_the_bytes_of_one_call(
    found: dict[int, list[dict[str, Any]]], whole: dict[str, Any], world: int, name: str
) -> None:
    tensors, metrics = whole[name]
    assert metrics
    ranks = [rank[name] for rank in found[world]]
    for tensor, expected in tensors.items():
        # Rows are disjoint, others 0.
        together = np.sum([of_rank[tensor] for of_rank, _ in ranks], axis=0)
        assert together.tobytes() == expected.tobytes(), tensor
    for _, of_rank in ranks:
        np.testing.assert_equal(of_rank, metrics)


def test_a_shard_alone_has_other_numbers(whole: dict[str, Any]) -> None:
    compat.use(target="local:")
    for name, (tensors, metrics) in answers(np.arange(5)).items():
        assert metrics != whole[name][1]
        if name == "normalized":
            assert not np.array_equal(tensors["weights"][:5], whole[name][0]["weights"][:5])


def loss_of_verl(mask: Any) -> None:
    zeros = torch.zeros(1, 2)
    verl.compute_policy_loss_vanilla(zeros, zeros, zeros, mask, config={})


def loss_of_openrlhf(mask: Any) -> None:
    zeros = torch.zeros(1, 2)
    openrlhf.PolicyLoss()(zeros, zeros, zeros, mask)


def hook_of_slime(mask: Any) -> None:
    del mask
    slime.start(cw.Preset("token_tis"))


@pytest.mark.parametrize("call", [loss_of_verl, loss_of_openrlhf, hook_of_slime])
def test_calls_for_micro_batches_are_refused(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", "token_tis")
    compat.use(target="local:", over_ranks=True)
    try:
        with pytest.raises(ValueError, match="over_ranks is set, and this function is called for"):
            call(torch.ones(1, 2))
    finally:
        compat.use(None)


def test_a_driver_needs_no_ranks() -> None:
    compat.use(target="local:", over_ranks=True)
    zeros = torch.zeros(1, 2)
    try:
        with pytest.raises(ValueError, match=r"torch\.distributed is not initialized"):
            verl.compute_rollout_correction_and_rejection_mask(zeros, zeros, torch.ones(1, 2))
    finally:
        compat.use(None)
