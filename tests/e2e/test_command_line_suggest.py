"""``counterweight suggest``: bounds with known answers; and the width of all tables."""

from __future__ import annotations

import io
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from command_line import done, save_npz

pytest.importorskip("click")
from counterweight_rl.cli import batch_file, compare, demo, listing, suggest
from counterweight_rl.cli.method import read_methods
from rich.console import Console

# 20 sequences of five tokens; all log ratios of sequence i are 0.01 (i + 1), but every second is negative.
SIZES = 0.01 * np.arange(1, 21)
SIGNS = np.where(np.arange(20) % 2, 1.0, -1.0)
MASK = np.ones((20, 5), np.uint8)
ROLLOUT = np.full((20, 5), -2.0, np.float32)
OLD = (ROLLOUT + (SIGNS * SIZES)[:, None]).astype(np.float32)
LADDER = {"rollout_log_probs": ROLLOUT, "old_log_probs": OLD, "response_mask": MASK}


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture(scope="module")
def local() -> Iterator[cw.Client]:
    with cw.Client("local:") as client:
        yield client


def suggested(file: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    rows = json.loads(done("suggest", file, "--json"))
    assert all([each["share"] for each in row["choices"]] == [0.01, 0.05, 0.1] for row in rows)
    return {row["preset"]: row["choices"] for row in rows}


def test_known_bounds(tmp_path: pathlib.Path) -> None:
    """5 and 10 % are one and two of 20 sequences, which leaves log ratios up to 0.19 and 0.18."""
    found = suggested(save_npz(tmp_path / "ladder.npz", LADDER))
    geometric = found["geo_rs_token_tis"]
    # exp(0.2) = 1.2214, exp(0.19) = 1.2092, exp(0.18) = 1.1972, and their inverses; outwards.
    assert [each["parameters"] for each in geometric] == [
        {"keep_lower": 0.818, "keep_upper": 1.23},
        {"keep_lower": 0.826, "keep_upper": 1.21},
        {"keep_lower": 0.835, "keep_upper": 1.2},
    ]
    dropped = [each["dropped_sequences"] for each in geometric]
    assert dropped == pytest.approx([0, 0.05, 0.1])
    # exp(l) - 1 - l is 0.02140 at 0.2, 0.01722 at 0.18, and 0.01696 at -0.19.
    assert found["k3_rs_token_tis"][1]["parameters"] == {"keep_upper": 0.0173}
    assert found["k3_rs_token_tis"][1]["dropped_sequences"] == pytest.approx(0.05)
    # Products of five: exp(0.95) = 2.586.
    assert found["seq_mis"][1]["parameters"] == {"keep_lower": 0.386, "keep_upper": 2.59}
    # The last sequence has 5 of the 100 tokens. token_tis bounds positive log ratios only; the
    # second largest of these is 0.18.
    assert found["icepop"][1]["parameters"] == {"lower": 0.826, "upper": 1.21}
    assert found["icepop"][1]["zero_weights"] == pytest.approx(0.05)
    assert found["token_tis"][1]["parameters"] == {"upper": 1.2}
    assert found["token_tis"][1]["truncated_weights"] == pytest.approx(0.05)
    assert found["skyrl_outlier_mask"][2]["dropped_sequences"] == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["padded", "packed", "real"])
def test_no_more_than_the_share_is_taken_out(
    local: cw.Client, tmp_path: pathlib.Path, name: str
) -> None:
    """In batches with outliers, an empty sequence, padding of NaN; and the numbers are the engine's."""
    if name == "real":
        list(demo.save(tmp_path))
        file = tmp_path / "step_08.npz"
    else:
        batch = padded_batch(300, 20, seed=3)
        if name == "packed":
            batch = packed(batch)
            del batch["padded_length"]
        file = save_npz(tmp_path / "batch.npz", batch)
    arguments = batch_file.read(file).arguments()
    for each in suggest.suggest(local, batch_file.read(file)):
        first = each.taken[0][0]
        for share, bounds, outcome in zip(
            suggest.SHARES, each.parameters, each.outcomes, strict=True
        ):
            method = cw.Preset(each.preset, **bounds)
            metrics = local.correct(method=method, **arguments).metrics
            assert outcome.dropped_tokens == pytest.approx(1 - metrics["kept_token_fraction"])
            assert getattr(outcome, first) <= share + 1e-9, (each.preset, bounds)
        # The bounds are narrow: two digits lose little of the largest share.
        if name != "real":
            assert getattr(each.outcomes[-1], first) > 0.08, each.preset


def test_without_old_log_probs_bypass_presets_are_named(tmp_path: pathlib.Path) -> None:
    batch = {"current_log_probs": OLD, "rollout_log_probs": ROLLOUT, "response_mask": MASK}
    found = suggested(save_npz(tmp_path / "bypass.npz", batch))
    assert set(found) == {"bypass_icepop", "bypass_geo_rs_token_tis", "bypass_ppo_clip_k3_rs"}
    bounds = found["bypass_geo_rs_token_tis"][1]
    assert bounds["parameters"] == {"keep_lower": 0.826, "keep_upper": 1.21}
    assert bounds["dropped_sequences"] == pytest.approx(0.05)


def test_equal_policies(tmp_path: pathlib.Path) -> None:
    """Without drift every bound keeps all, and none of them is empty."""
    found = suggested(save_npz(tmp_path / "equal.npz", {**LADDER, "old_log_probs": ROLLOUT}))
    for choices in found.values():
        for each in choices:
            bounds = each["parameters"]
            assert bounds.get("keep_upper", bounds.get("upper")) > 0
            assert bounds.get("keep_lower", bounds.get("lower", 0)) < 1
            taken = [value for name, value in each.items() if name not in ("share", "parameters")]
            assert taken == [0] * len(taken)


def test_the_table_of_suggest(tmp_path: pathlib.Path) -> None:
    text = done("suggest", save_npz(tmp_path / "ladder.npz", LADDER))
    assert "ladder.npz: 20 sequences, 100 tokens" in text
    cells = [[cell.strip() for cell in line.split("│")] for line in text.splitlines()]
    first = cells.index(["geo_rs_token_tis", "keep_lower", "0.818", "0.826", "0.835"])
    assert cells[first + 1] == ["geo_rs", "keep_upper", "1.23", "1.21", "1.2"]
    assert cells[first + 2] == ["geo_rs_seq_tis", "sequences dropped", "0 %", "5.00 %", "10.0 %"]
    assert "They do not tell which method learns better" in text
    assert "1 % of 20 sequences is less than one: the 1 % bounds drop none." in text


NUMBER = re.compile(r"(-|>?-?\d+(\.\d+)?(e[+-]\d+)?( %)?)?")


def _show_demo(client: cw.Client, where: Console, folder: pathlib.Path) -> None:
    demo.run(client, where)


def _show_comparison(client: cw.Client, where: Console, folder: pathlib.Path) -> None:
    geometric = "geo_rs_token_tis:keep_lower=0.951234:keep_upper=1.051234"
    batch = batch_file.read(folder / "step_00.npz")
    methods = read_methods(f"token_tis,{geometric},bypass_geo_rs_token_tis,seq_mis")
    compare.show(where, "step_00.npz", compare.compare(client, batch, methods))


def _show_suggestions(client: cw.Client, where: Console, folder: pathlib.Path) -> None:
    batch = batch_file.read(folder / "step_08.npz")
    suggest.show(where, batch, suggest.suggest(client, batch))


def _show_methods(client: cw.Client, where: Console, folder: pathlib.Path) -> None:
    listing.show(where, client.list_methods(), None, as_json=False)


@pytest.mark.parametrize(
    ("show", "text_columns"),
    [(_show_demo, 1), (_show_comparison, 1), (_show_suggestions, 2), (_show_methods, 2)],
)
@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_into_80_columns(
    local: cw.Client,
    tmp_path: pathlib.Path,
    show: Callable[..., None],
    text_columns: int,
    width: int,
) -> None:
    list(demo.save(tmp_path))
    where = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    show(local, where, tmp_path)
    assert isinstance(where.file, io.StringIO)
    in_heading = True
    tables = 0
    for line in where.file.getvalue().splitlines():
        if "┃" not in line and "│" not in line and "╇" not in line:
            in_heading = True
            continue
        assert len(line) <= 80
        assert line == line.rstrip()
        if "╇" in line:
            in_heading, tables = False, tables + 1
        elif not in_heading:
            cells = [cell.strip() for cell in line.split("│")]
            assert all(NUMBER.fullmatch(cell) for cell in cells[text_columns:]), line
            # No name is broken either.
            assert re.fullmatch(r"[\w=.]*|[\w -]+", cells[0]), line
    assert tables >= 1
