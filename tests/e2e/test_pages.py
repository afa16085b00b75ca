"""The pages' blocks, run in order as they are written, print what the pages show beneath them."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from certificates import Authority, Pair
from pages import Reader, blocks
from server_process import REPOSITORY, ServerProcess

README = REPOSITORY / "README.md"
CLIENT = REPOSITORY / "client/python/README.md"
AUDIT = REPOSITORY / "client/AUDIT.md"
CHOOSING = REPOSITORY / "kernels/CHOOSING.md"
METHODS = (REPOSITORY / "kernels/METHODS.md").read_text()
# Functions of counterweight_rl.torch and of verl's tensors.
WITHOUT = "" if importlib.util.find_spec("torch") else r"\b(?:torch|verl)\b"


def read(
    page: pathlib.Path, folder: pathlib.Path, server: ServerProcess, sharing: ServerProcess
) -> Reader:
    """Runs a page; the addresses and files that it names are those of tests here."""
    authority = Authority(folder / "authority", "ca")
    authority.sign("client").copy_to(Pair(folder / "tls.crt", folder / "tls.key"))
    shutil.copyfile(authority.certificate, folder / "ca.crt")
    (folder / "token").write_text("t" * 32)
    places = {
        "localhost:50051": server.address,
        "unix:/run/counterweight.sock": sharing.address,
        "/run/secrets/token": str(folder / "token"),
    }
    reader = Reader(page, folder, places, WITHOUT)
    reader.run_all()
    return reader


@pytest.fixture(scope="module")
def readme(
    local_library: None,
    tmp_path_factory: pytest.TempPathFactory,
    server: ServerProcess,
    sharing: ServerProcess,
) -> Reader:
    return read(README, tmp_path_factory.mktemp("readme"), server, sharing)


def test_the_readme_prints_what_it_shows(readme: Reader) -> None:
    languages = {block.language for block in blocks(README)}
    assert languages <= {"python", "sh", "text", ""}, "a block that no test runs"
    assert len([block for block in readme.ran if block.language == "python"]) >= 3
    assert [block.language for block in readme.skipped] == (["python"] if WITHOUT else [])
    # Only blocks of our own commands and of Python print, and each of Python shows what it prints.
    assert all(block.printed for block in blocks(README) if "print(" in block.text)


def test_the_first_call_keeps_the_batch_and_corrects_it(readme: Reader) -> None:
    """The first method that a reader tries must help on the data that stands above it."""
    first = next(block for block in readme.ran if block.language == "python")
    names: dict[str, Any] = {}
    exec(first.text, names)
    result = names["result"]
    assert result.keep_mask.mean() > 0.9
    weights = np.minimum(np.exp(names["old"] - names["mu"]), 2.0)
    np.testing.assert_allclose(result.weights, weights, rtol=1e-6)
    exact = (np.exp(names["trainer"]) * names["reward"]).sum(-1).mean()
    sampled, corrected = names["got"].mean(), (result.weights * names["got"]).mean()
    assert abs(corrected - exact) < 0.1 * abs(sampled - exact)
    assert result.warnings == ()


def test_a_narrow_interval_is_shown_as_one(readme: Reader) -> None:
    """The readme's only method that drops the batch has its consequence beneath, and others beside."""
    (several,) = [block for block in readme.ran if "for method in methods" in block.text]
    narrow, *others = [int(share) for share in re.findall(r"(\d+)% kept", several.printed or "")]
    assert several.text.index('"geo_rs_token_tis",') < several.text.index("keep_lower=0.9")
    assert narrow == 0
    assert all(share > 80 for share in others)


def test_the_clients_page_prints_what_it_shows(
    local_library: None, tmp_path: pathlib.Path, server: ServerProcess, sharing: ServerProcess
) -> None:
    reader = read(CLIENT, tmp_path, server, sharing)
    assert all(block.printed for block in blocks(CLIENT) if "print(" in block.text)
    runnable = [block for block in blocks(CLIENT) if block.language in ("python", "sh")]
    assert len(reader.ran) + len(reader.skipped) == len(runnable) >= 9
    first = reader.ran[0].printed or ""
    assert int(first.partition("%")[0]) > 90
    # The page compares a preset with the same one with an interval that fits.
    (compared,) = [block for block in runnable if "counterweight compare" in block.text]
    rows = re.findall(r"^geo_rs_token_tis +│ +([\d.]+) %", compared.printed or "", re.M)
    narrow, wide = map(float, rows)
    assert narrow > 90
    assert wide < 10


def test_the_page_of_audits_prints_what_it_shows(
    local_library: None, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("click")
    reader = Reader(AUDIT, tmp_path, {})
    reader.run_all()
    assert len(reader.ran) == 4
    # The page's advice is about these numbers.
    printed = next(block.printed or "" for block in reader.ran if "audit log" in block.text)
    by_step = printed.partition("Drift by step")[2]
    k3 = [float(n) for n in re.findall(r"^\d +│.*│ +(\S+) │ +\S+$", by_step, re.M)]
    assert len(k3) == 4
    assert k3[3] > 3 * k3[2]
    assert k3[2] > 2 * k3[1]
    assert re.search(r"^geo_rs_token_tis +│ +([5-9]\d\.?\d*) %", printed, re.M)


@pytest.mark.parametrize("page", [README, CHOOSING])
def test_the_tables_of_choices_name_methods_and_parameters(
    local_library: None, page: pathlib.Path
) -> None:
    with cw.Client("local:") as client:
        parameters = {
            method.name: {each.name for each in method.parameters}
            for method in client.list_methods()
        }
    table = page.read_text().partition("| your case")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) >= (10 if page == CHOOSING else 5)
    for row in rows:
        cells = row.split(" | ")
        words = re.findall(r"`([\w/<>]+)`", " ".join(cells[1:3]))
        if "`Dialect(" in row:
            continue
        method, *others = [word for word in words if not re.fullmatch(r"\w+_fraction", word)]
        assert method in parameters, row
        given = {word for word in others if "/" not in word and word in ALL_PARAMETERS}
        assert given <= parameters[method], row
        if page == CHOOSING:
            assert f"METHODS.md#{method})" in row
            assert f"\n### {method}\n" in METHODS


ALL_PARAMETERS = {"upper", "lower", "keep_lower", "keep_upper", "clip_low", "clip_high", "delta"}


def test_the_shares_of_the_table_of_intervals(local_library: None) -> None:
    """Each cell is what the engine keeps of that step of the demo's data."""
    table = CHOOSING.read_text().partition("| method, interval ")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    drift, *shares = rows[2:]
    steps = ("00", "01", "02", "04", "07", "08")
    methods = (
        "geo_rs_token_tis",
        cw.Preset("geo_rs_token_tis", keep_lower=0.99, keep_upper=1.01),
        cw.Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05),
        "k3_rs_token_tis",
        "seq_mis",
        "skyrl_token_mask",
    )
    names = ("rollout_log_probs", "old_log_probs", "response_mask", "sequence_lengths")
    with cw.Client("local:") as client:
        for column, step in enumerate(steps, 1):
            with np.load(REPOSITORY / f"tests/demo/data/step_{step}.npz") as data:
                batch = {name: data[name] for name in names}
            for row, method in zip(shares, methods, strict=True):
                metrics = client.correct(method=method, **batch).metrics
                assert row[column] == f"{100 * metrics['kept_token_fraction']:.0f} %", row[0]
            assert drift[column] == f"{metrics['k3']:.4f}"
