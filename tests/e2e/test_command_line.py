"""``counterweight correct`` and ``compare``: the numbers of Client.correct, from and to files."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from command_line import counterweight, done, rows_of, save_npz, save_parquet
from server_process import ServerProcess

pytest.importorskip("click")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PADDED = padded_batch(9, 50, seed=1)
PACKED = packed(padded_batch(9, 50, seed=2))
del PACKED["padded_length"]
FILES = pathlib.Path(__file__).parent / "batches_of_files"
VERL = {"rollout_is": "token", "rollout_is_threshold": 2.0, "policy_loss": {"loss_mode": "vanilla"}}
METHODS: dict[str, tuple[list[str], cw.Method]] = {
    "preset": (["-m", "geo_rs_token_tis"], "geo_rs_token_tis"),
    "parameters": (
        ["-m", "geo_rs_token_tis", "-p", "keep_lower=0.95", "-p", "keep_upper=1.05"],
        cw.Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05),
    ),
    "dialect": (["--dialect", "verl"], cw.Dialect("verl", VERL)),
}


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture(scope="module")
def local() -> Any:
    with cw.Client("local:") as client:
        yield client


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def same_metrics(printed: dict[str, Any], result: cw.Result[Any]) -> None:
    read = {n: np.nan if v is None else v for n, v in printed["metrics"].items()}
    np.testing.assert_equal(read, result.metrics)
    assert printed.get("loss") == result.loss
    assert [rule["dropped_tokens"] for rule in printed["rules"]] == [
        rule.dropped_tokens for rule in result.rules
    ]
    assert printed["warnings"] == list(result.warnings)


def flags_of(name: str, folder: pathlib.Path) -> list[str]:
    flags, _ = METHODS[name]
    if name != "dialect":
        return flags
    block = folder / "block.json"
    block.write_text(json.dumps(VERL))
    return [*flags, "--block", str(block)]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batch", [PADDED, PACKED], ids=["padded", "packed"])
def test_npz(local: cw.Client, tmp_path: pathlib.Path, name: str, batch: dict[str, Any]) -> None:
    file, out = save_npz(tmp_path / "batch.npz", batch), tmp_path / "out.npz"
    printed = json.loads(done("correct", file, *flags_of(name, tmp_path), "-o", out, "--json"))
    expected = local.correct(method=METHODS[name][1], **batch)
    with np.load(out) as arrays:
        made = [n for n in ("weights", "keep_mask", "gradient") if getattr(expected, n) is not None]
        lengths = ["sequence_lengths"] if "sequence_lengths" in batch else []
        assert set(arrays.files) == {*made, *lengths}
        for each in made:
            same(arrays[each], getattr(expected, each))
        for each in lengths:
            same(arrays[each], batch[each])
    same_metrics(printed, expected)


@pytest.mark.parametrize("name", METHODS)
def test_parquet(local: cw.Client, tmp_path: pathlib.Path, name: str) -> None:
    file, out = save_parquet(tmp_path / "batch.parquet", PACKED), tmp_path / "out.parquet"
    printed = json.loads(done("correct", file, *flags_of(name, tmp_path), "-o", out, "--json"))
    expected = local.correct(method=METHODS[name][1], **PACKED)
    table = parquet.read_table(out)
    for each in ("weights", "keep_mask", "gradient"):
        array = getattr(expected, each)
        if array is None:
            assert table.column(each).null_count == len(PACKED["sequence_lengths"])
            continue
        column = table.column(each).combine_chunks()
        np.testing.assert_array_equal(column.value_lengths(), PACKED["sequence_lengths"])
        values = column.flatten().to_numpy(zero_copy_only=False)
        same(values.astype(array.dtype), array)
    same_metrics(printed, expected)


@pytest.mark.parametrize("kind", [".npz", ".parquet"])
def test_drift_by_staleness(local: cw.Client, tmp_path: pathlib.Path, kind: str) -> None:
    versions = np.arange(PACKED["response_mask"].size, dtype=np.int32) % 7 - 1
    batch = {**PACKED, "policy_versions": versions}
    save = save_npz if kind == ".npz" else save_parquet
    asked = ("correct", save(tmp_path / f"batch{kind}", batch), "-m", "token_tis")
    expected = local.correct(method="token_tis", policy_version=9, **batch).staleness
    assert expected is not None
    printed = json.loads(done(*asked, "--policy-version", 9, "--json"))["staleness"]
    assert (printed["mean"], printed["max"]) == (expected.mean, expected.max)
    assert printed["unknown_tokens"] == expected.unknown_tokens > 0
    assert printed["buckets"] == {
        b.label: {
            "tokens": b.tokens,
            "kl": b.kl if b.tokens else None,
            "k3": b.k3 if b.tokens else None,
        }
        for b in expected.buckets
    }
    table = done(*asked, "--policy-version", 9)
    assert "staleness 3-4" in table
    assert f"{expected.unknown_tokens} tokens of unknown versions" in table
    assert "staleness" not in json.loads(done(*asked, "--json"))


def test_the_columns_of_parquet(tmp_path: pathlib.Path) -> None:
    file, out = save_parquet(tmp_path / "batch.parquet", PACKED), tmp_path / "out.parquet"
    done("correct", file, "-m", "token_tis", "-o", out)
    schema = parquet.read_schema(out)
    assert {field.name: str(field.type).partition("<")[0] for field in schema} == {
        "weights": "list",
        "keep_mask": "list",
        "token_reasons": "list",
        "sequence_reasons": "uint16",
        "gradient": "list",
    }
    elements = {f.name: str(f.type.value_type) for f in schema if f.name != "sequence_reasons"}
    assert elements == {
        "weights": "float",
        "keep_mask": "bool",
        "token_reasons": "uint16",
        "gradient": "float",
    }


@pytest.mark.parametrize("name", ["three.npz", "packed.npz", "three.parquet"])
def test_files_of_numpy_and_pyarrow(tmp_path: pathlib.Path, name: str) -> None:
    """They hold the same three tokens, as one row or as rows of one, none and two."""
    out = tmp_path / "out.npz"
    done("correct", FILES / name, "-m", "token_tis", "-o", out)
    with np.load(out) as arrays:
        assert arrays["weights"].size == 3
        np.testing.assert_array_equal(arrays["keep_mask"].reshape(-1), [1, 1, 0])
        lengths = [1, 0, 2] if name != "three.npz" else None
        assert ("sequence_lengths" in arrays.files) == (lengths is not None)
        if lengths:
            np.testing.assert_array_equal(arrays["sequence_lengths"], lengths)


def test_other_lists_of_parquet(local: cw.Client, tmp_path: pathlib.Path) -> None:
    """Large lists, lists of one size, doubles, booleans and several row groups are read too."""
    rows = rows_of({**PACKED, "sequence_lengths": np.array([3, 3, 3])})
    rows = {name: [row[:3] for row in lists] for name, lists in rows.items()}
    batch = {name: np.concatenate(lists) for name, lists in rows.items()}
    expected = local.correct(method="token_tis", sequence_lengths=[3, 3, 3], **batch)
    kinds = {
        "rollout_log_probs": pyarrow.large_list(pyarrow.float32()),
        "old_log_probs": pyarrow.list_(pyarrow.float64(), 3),
        "current_log_probs": pyarrow.list_(pyarrow.float32()),
        "advantages": pyarrow.list_(pyarrow.float32()),
        "response_mask": pyarrow.list_(pyarrow.bool_()),
    }
    lists = {n: [[float(x) for x in row] for row in rows[n]] for n in kinds}
    lists["response_mask"] = [[bool(x) for x in row] for row in rows["response_mask"]]
    table = pyarrow.table({n: pyarrow.array(lists[n], kind) for n, kind in kinds.items()})
    parquet.write_table(table, tmp_path / "batch.parquet", row_group_size=2)
    done("correct", tmp_path / "batch.parquet", "-m", "token_tis", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        same(arrays["weights"], expected.weights)


def test_other_dtypes_of_npz(local: cw.Client, tmp_path: pathlib.Path) -> None:
    half = {n: a.astype(np.float16) if n != "response_mask" else a for n, a in PADDED.items()}
    mask = half["response_mask"]
    expected = local.correct(method="token_tis", **half)
    file = save_npz(tmp_path / "half.npz", {**half, "response_mask": mask.astype(np.float64)})
    done("correct", file, "-m", "token_tis", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        same(arrays["weights"], expected.weights)
        same(arrays["keep_mask"], expected.keep_mask)


def test_a_server(client: cw.Client, server: ServerProcess, tmp_path: pathlib.Path) -> None:
    file, out = save_npz(tmp_path / "batch.npz", PADDED), tmp_path / "out.npz"
    flags = ["-m", "geo_rs_token_tis", "-o", out, "--json", "--run", "command-line"]
    remote = json.loads(done("correct", file, "--target", server.address, *flags))
    expected = client.correct(method="geo_rs_token_tis", **PADDED)
    same_metrics(remote, expected)
    with np.load(out) as arrays:
        same(arrays["weights"], expected.weights)
    assert server.metric('counterweight_drift_batches_total{run="command-line"}') == 1
    again = done("correct", file, *flags, changes={"COUNTERWEIGHT_TARGET": server.address})
    assert json.loads(again)["metrics"] == remote["metrics"]
    assert server.metric('counterweight_drift_batches_total{run="command-line"}') == 2


def test_yaml_and_release(local: cw.Client, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("yaml")
    file, block = save_npz(tmp_path / "batch.npz", PADDED), tmp_path / "block.yaml"
    block.write_text("rollout_is: token\npolicy_loss:\n  loss_mode: gspo\n")
    flags = ["--dialect", "verl", "--block", block, "--json"]
    written = {"rollout_is": "token", "policy_loss": {"loss_mode": "gspo"}}
    for release in ("0.9.0", "0.9.1"):
        printed = json.loads(done("correct", file, *flags, "--release", release))
        method = cw.Dialect("verl", written, release=release)
        same_metrics(printed, local.correct(method=method, **PADDED))


def test_the_table(local: cw.Client, tmp_path: pathlib.Path) -> None:
    file = save_npz(tmp_path / "batch.npz", PADDED)
    # An interval in which some sequences stay and some do not.
    flags, method = METHODS["parameters"]
    expected = local.correct(method=method, **PADDED)
    assert 0 < expected.metrics["kept_token_fraction"] < 1
    text = done("correct", file, *flags)
    assert f"{expected.metrics['k3']:#.3g}" in text
    assert f"{100 * expected.metrics['kept_token_fraction']:#.3g} %" in text
    assert f"{expected.rules[0].dropped_tokens} tokens" in text
    every = done("correct", file, *flags, "--all")
    assert all(name in every for name in expected.metrics)


def test_the_bar_is_for_terminals(tmp_path: pathlib.Path) -> None:
    file = save_npz(tmp_path / "batch.npz", PADDED)
    # done() has seen that it is silent elsewhere.
    done("correct", file, "-m", "token_tis")
    terminal = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TERM": "xterm"}
    shown = counterweight("correct", file, "-m", "token_tis", changes=terminal)
    assert shown.returncode == 0
    assert "correcting" in shown.stderr
    assert "100%" in shown.stderr


def test_compare(local: cw.Client, tmp_path: pathlib.Path) -> None:
    file = save_npz(tmp_path / "batch.npz", PADDED)
    names = ["token_tis", "icepop", "geo_rs_token_tis", "seq_mis"]
    rows = json.loads(done("compare", file, "--methods", ",".join(names), "--json"))
    assert [row["method"] for row in rows] == names
    tokens = int(PADDED["response_mask"].sum())
    for row in rows:
        result = local.correct(method=row["method"], **PADDED)
        assert result.weights is not None
        assert result.keep_mask is not None
        kept = int(result.keep_mask.sum())
        assert row["dropped_tokens"] == 1 - kept / tokens
        assert row["dropped_sequences"] == 1 - result.metrics["kept_sequence_fraction"]
        zero = np.count_nonzero((result.weights == 0) & (result.keep_mask == 1))
        assert row["zero_weights"] == zero / tokens
        for name in ("effective_sample_size", "kept_effective_sample_size", "kl", "k3"):
            assert row[name] == result.metrics[name]
    # The rules of the last two drop, icepop's bound makes weights 0, token_tis does neither.
    assert [row["dropped_tokens"] > 0 for row in rows] == [False, False, True, True]
    assert [row["zero_weights"] > 0 for row in rows] == [False, True, False, False]
    table = done("compare", file, "--methods", ",".join(names))
    for row in rows[:2]:
        assert row["kept_effective_sample_size"] == row["effective_sample_size"]
    for row in rows[2:]:
        assert row["kept_effective_sample_size"] <= 1 - row["dropped_tokens"]
    assert all(f"{100 * row['effective_sample_size']:#.3g} %" in table for row in rows)
    assert f"{100 * rows[3]['kept_effective_sample_size']:#.3g} %" in table


def test_compare_with_parameters(local: cw.Client, tmp_path: pathlib.Path) -> None:
    file = save_npz(tmp_path / "batch.npz", PADDED)
    texts = {
        "geo_rs_token_tis": cw.Preset("geo_rs_token_tis"),
        "geo_rs_token_tis:keep_lower=0.95": cw.Preset("geo_rs_token_tis", keep_lower=0.95),
        "icepop:lower=0.8:upper=1.25": cw.Preset("icepop", lower=0.8, upper=1.25),
    }
    # Blanks, and a method that is there twice, change nothing.
    asked = " , ".join([*texts, "geo_rs_token_tis"])
    rows = json.loads(done("compare", file, "--methods", asked, "--json"))
    assert [row["method"] for row in rows] == list(texts)
    for row, method in zip(rows, texts.values(), strict=True):
        metrics = local.correct(method=method, **PADDED).metrics
        assert row["dropped_tokens"] == pytest.approx(1 - metrics["kept_token_fraction"])
        assert row["truncated_weights"] == metrics["weight_clipped_high_fraction"]
    assert rows[0]["dropped_tokens"] > rows[1]["dropped_tokens"] > 0
    table = done("compare", file, "--methods", asked)
    assert "\n  keep_lower=0.95 " in table
    assert "\n  upper=1.25 " in table


def test_compare_names_a_method_that_drops_most(tmp_path: pathlib.Path) -> None:
    """The preset's own interval is for drift that is far smaller than this batch's."""
    file = save_npz(tmp_path / "batch.npz", PADDED)
    narrow = done("compare", file, "--methods", "token_tis,geo_rs_token_tis")
    assert "geo_rs_token_tis drops 100 % of the tokens; counterweight suggest FILE" in narrow
    wide = "geo_rs_token_tis:keep_lower=0.5:keep_upper=2"
    assert "suggest" not in done("compare", file, "--methods", f"token_tis,{wide}")


def test_compare_names_the_drift_of_each_ratio(local: cw.Client, tmp_path: pathlib.Path) -> None:
    file = save_npz(tmp_path / "batch.npz", PADDED)
    names = ("token_tis", "bypass_icepop", "icepop")
    kl = [local.correct(method=name, **PADDED).metrics["kl"] for name in names]
    assert kl[0] == kl[2] != kl[1]
    lines = done("compare", file, "--methods", ",".join(names)).splitlines()
    assert [line.partition("(")[2] for line in lines if line.startswith("KL")] == [
        "token_tis, icepop)",
        "bypass_icepop)",
    ]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_of_compare(tmp_path: pathlib.Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    file, picture = save_npz(tmp_path / "batch.npz", PADDED), tmp_path / f"compared.{suffix}"
    done("compare", file, "--methods", "token_tis,icepop", "--picture", picture)
    start = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert picture.stat().st_size > 5000
