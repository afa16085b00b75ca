"""``counterweight correct`` takes every system's block, with the system's own answer."""

from __future__ import annotations

import json
import pathlib

import counterweight_rl as cw
import numpy as np
import pytest
from command_line import done, refused, save_npz
from goldens import GOLDENS, REFUSED, SYSTEMS, arguments, array, release_of

pytest.importorskip("click")


def chosen() -> dict[str, str]:
    """Returns the file of each system with the longest block that has an answer with a loss."""
    found: dict[str, str] = {}
    for name, golden in GOLDENS.items():
        if "loss" not in golden["expect"] or "grad" not in golden["expect"] or name in REFUSED:
            continue
        system = golden["dialect"]
        best = found.setdefault(system, name)
        if len(str(golden["params"])) > len(str(GOLDENS[best]["params"])):
            found[system] = name
    return found


CHOSEN = chosen()


def test_each_system_has_a_file() -> None:
    assert CHOSEN.keys() == SYSTEMS.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_block_of_the_system(local_library: None, tmp_path: pathlib.Path, system: str) -> None:
    golden = GOLDENS[CHOSEN[system]]
    batch = arguments(golden)
    method = batch.pop("method")
    del batch["outputs"]
    file, block = save_npz(tmp_path / "batch.npz", batch), tmp_path / "block.json"
    block.write_text(json.dumps(golden["params"]))
    release = ["--release", release_of(golden)] if release_of(golden) else []
    flags = ["--dialect", system, "--block", block, *release, "--json"]
    out = tmp_path / "out.npz"
    printed = json.loads(done("correct", file, *flags, "-o", out))
    loss = float(golden["expect"]["loss"])
    assert printed["loss"] == pytest.approx(loss, rel=2e-5, abs=1e-7)
    counts = batch["response_mask"] == 1
    wanted = array(golden["expect"]["grad"])[counts]
    with np.load(out) as arrays:
        atol = 1e-6 * np.abs(wanted).max(initial=0.0)
        np.testing.assert_allclose(arrays["gradient"][counts], wanted, rtol=2e-5, atol=atol)
    with cw.Client("local:") as client:
        assert printed["warnings"] == list(client.correct(method=method, **batch).warnings)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_misspelt_field_is_named(
    local_library: None, tmp_path: pathlib.Path, system: str
) -> None:
    golden = GOLDENS[CHOSEN[system]]
    batch = arguments(golden)
    del batch["method"], batch["outputs"]
    file, block = save_npz(tmp_path / "batch.npz", batch), tmp_path / "block.json"
    field = next(iter(golden["params"]))
    block.write_text(json.dumps({**golden["params"], f"{field}x": 1}))
    release = ["--release", release_of(golden)] if release_of(golden) else []
    flags = ["--dialect", system, "--block", block, *release]
    refusal = refused(2, "correct", file, *flags)
    assert f"did you mean '{field}'" in refusal
