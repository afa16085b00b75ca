"""``counterweight`` refuses by one sentence that names file and field, and by its exit code."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from batches import packed, padded_batch
from command_line import COMMAND, refused, rows_of, save_npz, save_parquet

pytest.importorskip("click")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PADDED = padded_batch(4, 6, seed=1)
PACKED = packed(padded_batch(4, 6, seed=2))
MASK = PADDED["response_mask"]
TIS = ("-m", "token_tis")


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def good(tmp_path: pathlib.Path) -> pathlib.Path:
    return save_npz(tmp_path / "good.npz", PADDED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"response_mask": None}, ["response_mask: is missing; the file has rollout_log_probs"]),
        (
            {"rollout_log_probs": None, "old_log_probs": None, "current_log_probs": None},
            ["rollout_log_probs: is missing"],
        ),
        ({"old_log_probs": None}, ["old_log_probs: is required by this method"]),
        ({"old_log_probs": MASK}, ["old_log_probs: must be float16, float32", "not uint8"]),
        ({"old_log_probs": np.full((4, 6), "x")}, ["old_log_probs: must be float16", "not <U1"]),
        ({"old_log_probs": np.full((4, 6), None)}, ["old_log_probs: cannot be read"]),
        ({"response_mask": MASK * 2}, ["response_mask: must be 0 or 1 everywhere"]),
        ({"response_mask": MASK[0]}, ["response_mask: must be [B, T] without sequence_lengths"]),
        (
            {"old_log_probs": PADDED["old_log_probs"][:2]},
            ["old_log_probs: has shape [2, 6], but response_mask has [4, 6]"],
        ),
        ({"sequence_lengths": np.array([4, 6])}, ["response_mask: must be one-dimensional"]),
        ({"sequence_lengths": np.array([0.5])}, ["sequence_lengths: must be", "float64"]),
        (
            {"old_log_probs": np.full((4, 6), np.nan, np.float32)},
            ["old_log_probs", "finite"],
        ),
    ],
)
def test_wrong_npz(tmp_path: pathlib.Path, changes: dict[str, Any], words: list[str]) -> None:
    arrays = {n: a for n, a in {**PADDED, **changes}.items() if a is not None}
    file = tmp_path / "batch.npz"
    np.savez(file, **arrays)
    sentence = refused(2, "correct", file, *TIS)
    for word in [f"{file}: ", *words]:
        assert word in sentence
    assert refused(2, "compare", file, "--methods", "token_tis").endswith(sentence)


def test_wrong_lengths(tmp_path: pathlib.Path) -> None:
    for lengths in ([1, 1, 1, 1], [-1, 2, 3, 4]):
        batch = {**PACKED, "sequence_lengths": np.array(lengths)}
        sentence = refused(2, "correct", save_npz(tmp_path / "batch.npz", batch), *TIS)
        assert sentence.startswith(f"{tmp_path}/batch.npz: sequence_lengths: must ")


@pytest.mark.parametrize("kind", [".npz", ".parquet"])
def test_a_file_of_other_arrays_is_told_what_it_has(tmp_path: pathlib.Path, kind: str) -> None:
    file = tmp_path / f"batch{kind}"
    other = {f"array_{i:02}": np.ones(3) for i in range(14)}
    if kind == ".npz":
        np.savez(file, **other)
    else:
        parquet.write_table(pyarrow.table(other), file)
    sentence = refused(2, "correct", file, *TIS)
    assert "the file has array_00, array_01, " in sentence
    assert "array_11, ...; a batch has response_mask, rollout_log_probs, and old_log" in sentence


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("old_log_probs", [1.0] * 4, "must be a column of lists of numbers, not of double"),
        ("old_log_probs", [["a"]] * 4, "must have lists of numbers, not of string"),
        ("old_log_probs", [[1.0], None, [], []], "must have no nulls"),
        ("old_log_probs", [[None], [], [], []], "must have"),
        ("old_log_probs", [[1.0]] * 4, "elements in row"),
        ("old_log_probs", [[1]] * 4, ""),
        ("response_mask", None, "is missing"),
        ("response_mask", [[2]] * 4, ""),
    ],
)
def test_wrong_parquet(tmp_path: pathlib.Path, column: str, values: Any, words: str) -> None:
    rows: dict[str, Any] = dict(rows_of(PACKED))
    rows.pop(column)
    if values is not None:
        rows[column] = values
    file = tmp_path / "batch.parquet"
    parquet.write_table(pyarrow.table(rows), file)
    sentence = refused(2, "correct", file, *TIS)
    assert sentence.startswith(f"{file}: {column}: ")
    assert words in sentence


@pytest.mark.parametrize("name", ["batch.npz", "batch.parquet"])
@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"PAR1"])
def test_no_such_format(tmp_path: pathlib.Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert refused(2, "correct", file, *TIS).startswith(f"{file}: is no ")


def test_cut_files(tmp_path: pathlib.Path) -> None:
    for file in (
        save_npz(tmp_path / "batch.npz", PADDED),
        save_parquet(tmp_path / "batch.parquet", PACKED),
    ):
        whole = file.read_bytes()
        for size in (len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:size])
            assert refused(2, "correct", file, *TIS).startswith(f"{file}: ")
        # The directory of the archive, or the footer, is whole, and data is not.
        file.write_bytes(whole[:100] + bytes(50) + whole[150:])
        assert refused(2, "correct", file, *TIS).startswith(f"{file}: ")


def test_other_files(tmp_path: pathlib.Path, good: pathlib.Path) -> None:
    assert refused(2, "correct", "a.csv", *TIS) == "a.csv: a batch is a .npz or a .parquet file"
    missing = tmp_path / "missing.npz"
    assert refused(2, "correct", missing, *TIS) == f"{missing}: there is no such file"
    folder = tmp_path / "folder.npz"
    folder.mkdir()
    assert str(folder) in refused(2, "correct", folder, *TIS)
    assert "results go into" in refused(2, "correct", good, *TIS, "-o", "out.csv")
    out = tmp_path / "no/such/out.npz"
    assert refused(1, "correct", good, *TIS, "-o", out) == f"{out}: No such file or directory"
    out = tmp_path / "no/such/out.parquet"
    assert "out.parquet" in refused(1, "correct", good, *TIS, "-o", out)
    picture = ("--picture", tmp_path / "no/such/picture.png")
    flags = ("compare", good, "--methods", "token_tis")
    assert "picture.png" in refused(1, *flags, *picture)
    assert "must be a .png" in refused(2, *flags, "--picture", "a.gif")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "needs either --method or --dialect"),
        ([*TIS, "--dialect", "verl"], "needs either --method or --dialect"),
        (["-m", "tokentis"], "method: No preset is called 'tokentis'. Did you mean 'token_tis'?"),
        ([*TIS, "-p", "uper=3"], "method.parameters[uper]: token_tis has no such parameter"),
        ([*TIS, "-p", "upper"], "--parameter must be NAME=NUMBER; got 'upper'"),
        ([*TIS, "-p", "upper=a"], "--parameter must be NAME=NUMBER; got 'upper=a'"),
        ([*TIS, "-p", "policy_loss=1"], "--parameter must be NAME=NUMBER"),
        ([*TIS, "-p", "upper=-1"], "upper"),
        (["--dialect", "verll"], "method.system: 'verll' is not a dialect"),
        (["--dialect", "verl", "-p", "upper=1"], "--parameter goes with --method"),
        ([*TIS, "--release", "0.9.1"], "--release go with --dialect"),
        (["--dialect", "verl", "--release", "new"], "release"),
        (["--dialect", "verl", "--block", "/no/such.yaml"], "--block /no/such.yaml: No such file"),
        ([*TIS, "--non-finite", "ignore"], "--non-finite"),
        ([*TIS, "--run", "a b"], "run: "),
        ([*TIS, "--target", "local:gpu"], "target 'local:gpu': the backend must be one of"),
        ([*TIS, "--transport", "unary"], "transport"),
        ([*TIS, "--token-file", "/no/such"], "token"),
        ([*TIS, "--methid"], "No such option"),
        (["-m", "bypass_icepop", "-p", "lower=3", "-p", "upper=1"], "upper"),
    ],
)
def test_wrong_flags(good: pathlib.Path, flags: list[str], words: str) -> None:
    assert words in refused(2, "correct", good, *flags)


@pytest.mark.parametrize("text", ["a: [", "- 1", '{"rollout_iss": "token"}', "\x00"])
def test_wrong_blocks(good: pathlib.Path, tmp_path: pathlib.Path, text: str) -> None:
    pytest.importorskip("yaml")
    block = tmp_path / "block.yaml"
    block.write_text(text)
    sentence = refused(2, "correct", good, "--dialect", "verl", "--block", block)
    assert "method.block.rollout_iss" in sentence or f"--block {block}: " in sentence


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"rollout_is": "token", "rollout_is": "sequence"}',
            "the key 'rollout_is' is given twice",
        ),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' is given twice"),
        ("rollout_is: token\nrollout_is: sequence\n", "the key 'rollout_is' is given twice"),
        ("a: {b: 1, c: 2, b: 3}", "the key 'b' is given twice"),
        (BOMB, "at most 10000 values"),
        (MERGES, "10000"),
        ('{"a":' * 30000 + "1" + "}" * 30000, "deep"),
        ('{"a":' * 90 + "1" + "}" * 90, "nested at most 30 deep"),
        ("a: " + "[" * 5000, "deep"),
        ("a: " + "[" * 90 + "]" * 90, "nested at most 30 deep"),
        ("a: &a\n  b: *a\n", "nested at most 30 deep"),
        ('{"rollout_is_threshold": ' + "9" * 5000 + "}", "digits"),
        ('{"rollout_is_threshold": ' + "9" * 400 + "}", "beyond the range of a float"),
        ("a: !!python/object/apply:os.system [id]", "neither JSON nor YAML"),
        ("rollout_is: 2020-01-01", "cannot hold a date"),
        ("rollout_is: !!set {a, b}", "cannot hold a set"),
        ("1: 2", "keys must be strings"),
        ('{"rollout_is": "\\ud800"}', "UTF-8"),
        ("", "must be a mapping"),
    ],
)
def test_hostile_blocks(good: pathlib.Path, tmp_path: pathlib.Path, text: str, words: str) -> None:
    pytest.importorskip("yaml")
    block = tmp_path / "block.yaml"
    block.write_text(text)
    assert words in refused(2, "correct", good, "--dialect", "verl", "--block", block)


def test_a_merge_is_no_key_that_stands_twice(good: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("yaml")
    block = tmp_path / "block.yaml"
    block.write_text(
        "a: &a {rollout_is: token, rollout_is_threshold: 3}\n"
        "b: &b {<<: *a, rollout_is: sequence}\n"
        "c: {<<: *b, rollout_is: token}\n"
    )
    sentence = refused(2, "correct", good, "--dialect", "verl", "--block", block)
    assert "Unknown field 'a'" in sentence
    assert "twice" not in sentence


def test_the_flag_that_a_refusal_of_nan_names(tmp_path: pathlib.Path, good: pathlib.Path) -> None:
    with np.load(good) as archive:
        arrays = dict(archive)
    arrays["old_log_probs"] = np.full_like(arrays["old_log_probs"], np.nan)
    path = tmp_path / "nan.npz"
    np.savez(path, **arrays)
    sentence = refused(2, "correct", path, *TIS)
    assert "--non-finite" in sentence
    assert "non_finite" not in sentence


def test_wrong_methods_of_compare(good: pathlib.Path) -> None:
    sentence = refused(2, "compare", good, "--methods", "token_tis,ice")
    assert sentence.startswith("--methods ice: No preset is called 'ice'")
    assert "at least one name" in refused(2, "compare", good, "--methods", ",")
    for wrong, words in (
        ("icepop:uper=2", "--methods icepop:uper=2: method.parameters[uper]: icepop has no such"),
        ("icepop:upper", "--methods icepop:upper: a parameter must be NAME=NUMBER; got 'upper'"),
        ("icepop:upper=a", "a parameter must be NAME=NUMBER; got 'upper=a'"),
        ("icepop:", "--methods icepop:: a parameter must be NAME=NUMBER; got ''"),
        ("icepop:upper=2:upper=3", "--methods icepop:upper=2:upper=3: upper is given twice"),
        (":upper=2", "--methods :upper=2: needs a name before the first colon"),
        ("icepop:lower=3:upper=2", "--methods icepop:lower=3:upper=2: "),
    ):
        assert words in refused(2, "compare", good, "--methods", f"token_tis,{wrong}")
    sentence = refused(2, "methods", "tokentis")
    assert sentence == "there is no method 'tokentis'; did you mean 'token_tis'?"


def test_suggest_needs_log_probs_that_are_compared(tmp_path: pathlib.Path) -> None:
    for lacking in (["rollout_log_probs"], ["old_log_probs", "current_log_probs"]):
        batch = {name: array for name, array in PADDED.items() if name not in lacking}
        sentence = refused(2, "suggest", save_npz(tmp_path / "batch.npz", batch))
        assert sentence.endswith(
            "batch.npz: needs rollout_log_probs, and old_log_probs or current_log_probs"
        )
    nothing = save_npz(tmp_path / "batch.npz", {**PADDED, "response_mask": MASK * 0})
    assert refused(2, "suggest", nothing) == f"{nothing}: response_mask: no token counts"
    nan = np.where(MASK, np.nan, 0).astype(np.float32)
    for name in ("rollout_log_probs", "old_log_probs"):
        sentence = refused(2, "suggest", save_npz(tmp_path / "nan.npz", {**PADDED, name: nan}))
        assert f"nan.npz: {name}" in sentence


def test_what_is_not_the_users_mistake(good: pathlib.Path) -> None:
    away = ("--target", "127.0.0.1:9", "--timeout", "0.2")
    assert refused(1, "correct", good, *TIS, *away)
    changes = {"COUNTERWEIGHT_LIBRARY": "/no/such.so"}
    sentence = refused(1, "correct", good, *TIS, changes=changes, program=COMMAND)
    assert "COUNTERWEIGHT_LIBRARY names /no/such.so" in sentence


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("click", ["methods"]),
        ("rich", ["methods"]),
        ("pyarrow", ["correct", "BATCH.parquet", "-m", "token_tis"]),
        ("yaml", ["correct", "BATCH.npz", "--dialect", "verl", "--block", "BLOCK"]),
        ("matplotlib", ["compare", "BATCH.npz", "--methods", "token_tis", "--picture", "a.png"]),
    ],
)
def test_a_missing_extra(tmp_path: pathlib.Path, module: str, arguments: list[str]) -> None:
    save_npz(tmp_path / "BATCH.npz", PADDED)
    save_parquet(tmp_path / "BATCH.parquet", PACKED)
    (tmp_path / "BLOCK").write_text("rollout_is: token")
    code = (
        f"import sys; sys.modules[{module!r}] = None; from counterweight_rl.cli import main; main()"
    )
    named = [str(tmp_path / a) if a.startswith("B") else a for a in arguments]
    sentence = refused(1, *named, program=(sys.executable, "-c", code))
    package = {"yaml": "PyYAML"}.get(module, module)
    assert sentence == f'this needs {package}: pip install "counterweight-rl[cli]"'


def test_the_command_is_a_module_too() -> None:
    assert COMMAND[1:] == ("-m", "counterweight_rl.cli")
    assert "No such command" in refused(2, "corect")
