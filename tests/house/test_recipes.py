"""The recipes of CONTRIBUTING.md work: made-up additions follow them, each stored as a patch.

A patch touches only files that its recipe names, and applies to the tree. It has no generated code, and no page, because
each rewording of one would break it. With NIGHTLY=1 each patch is also applied to a copy of the tree, where generated code
is made, what the patch affects is built, and its tests run: up to an hour for each on two cores, less with ccache.

Fields have numbers that the contract will not reach. When a patch no longer applies, `git apply --3way` it, fix it, and
store `git diff HEAD` of the files that it had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from contributing import RECIPES, ROOT, names, paths

PATCHES = Path(__file__).with_name("recipes")


@dataclass(frozen=True)
class Addition:
    """An addition that a patch makes.

    Attributes:
        recipes: Titles in CONTRIBUTING.md.
        programs: Programs of C++ tests that see the addition.
        clients: The clients have it too.
    """

    recipes: tuple[str, ...]
    programs: tuple[str, ...]
    clients: bool = False


ADDITIONS = {
    "gauge": Addition(("Add a metric",), ("codec_test", "server_parts_test", "server_test")),
    "loss": Addition(
        ("Add a surrogate", "Add a preset"),
        (
            "kernels_test",
            "kernels_spec_test",
            "kernels_reference_test",
            "codec_test",
            "method_equivalents_test",
        ),
        clients=True,
    ),
    "option": Addition(("Add an option",), ("codec_test",), clients=True),
    "rpc": Addition(("Add an RPC",), ("server_test", "client_cpp_test"), clients=True),
    "statistic": Addition(
        ("Add a statistic",), ("kernels_test", "kernels_columns_test", "codec_test")
    ),
}


def touched(patch: Path) -> set[str]:
    return set(re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(), re.MULTILINE))


def run(tree: Path, *command: str | Path) -> None:
    """Runs a command in a tree, whose packages and compiler's cache are those of this one."""
    subprocess.run(
        command,
        cwd=tree,
        check=True,
        env={
            **os.environ,
            "CCACHE_BASEDIR": str(tree),
            "CCACHE_NOHASHDIR": "1",
            "CUDA": "0",
            "PYTHONPATH": str(tree / "client/python"),
        },
    )


def copy(tree: Path) -> None:
    """Copies the files that git knows, and refers to what .ci/setup has fetched."""
    known = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in known.stdout.rstrip("\0").split("\0"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for fetched in (".tools", ".venv", ".venv-gen"):
        (tree / fetched).symlink_to((ROOT / fetched).resolve())
    if (ROOT / "build/protobuf").exists():
        shutil.copytree(ROOT / "build/protobuf", tree / "build/protobuf")
    run(tree, "git", "init", "-q")


def test_each_patch_has_its_recipe() -> None:
    assert {patch.stem for patch in PATCHES.iterdir()} == set(ADDITIONS)


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_patch_applies(name: str) -> None:
    patch = PATCHES / f"{name}.patch"
    done = subprocess.run(
        ["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_patched_contract_compiles(name: str, tmp_path: Path) -> None:
    # A number that the contract took since makes it none.
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    apply = ("git", "apply", "--include=proto/*", PATCHES / f"{name}.patch")
    subprocess.run(apply, cwd=tmp_path, check=True)
    sources = sorted(
        Path("proto/counterweight/v1", each.name)
        for each in ROOT.glob("proto/counterweight/v1/*.proto")
    )
    done = subprocess.run(
        ["protoc", "-Iproto", "--descriptor_set_out=all.bin", *sources],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_patch_touches_only_files_of_its_recipe(name: str) -> None:
    named = {
        path
        for title in ADDITIONS[name].recipes
        for each in names(RECIPES[title])
        for path in paths(each, RECIPES[title])
    }
    assert touched(PATCHES / f"{name}.patch") <= named


@pytest.mark.skipif(os.environ.get("NIGHTLY") != "1", reason="takes an hour; NIGHTLY=1 runs it")
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("name", ADDITIONS)
def test_a_patched_tree_passes(name: str, tmp_path: Path) -> None:
    addition = ADDITIONS[name]
    copy(tmp_path)
    run(tmp_path, "git", "apply", PATCHES / f"{name}.patch")
    run(tmp_path, ".ci/generate")
    run(tmp_path, ".ci/asyncio_client")
    # Warnings are errors in dev; several sources compiled as one take a third of the time.
    run(tmp_path, "cmake", "--preset", "dev", "-DCOUNTERWEIGHT_UNITY=ON")
    run(tmp_path, ".ci/build", "dev", *addition.programs)
    tests = rf"^({'|'.join(addition.programs)})\."
    run(tmp_path, "ctest", "--preset", "dev", "--no-tests=error", "-R", tests)
    if addition.clients:
        pytest_of = (".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
        run(tmp_path, *pytest_of, "client/python/tests")
        run(tmp_path / "client/go", "../../.ci/with_go", "go", "test", ".")
