"""The site's versions are side by side: each is whole, and the switcher and search engines know which is the latest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "deploy/site"))

import collect  # noqa: E402
import versions  # noqa: E402

PYTHON = ROOT / ".venv-site/bin/python"


def test_releases_are_in_the_order_of_their_numbers() -> None:
    tags = ["v0.9.0", "client/go/v0.9.0", "v0.10.0", "v0.10.0-rc1", "v1", "v0.9.1"]
    assert versions.newest_first(tags) == ["0.10.0", "0.9.1", "0.9.0"]


def dead(folder: Path, *links: str) -> list[str]:
    version = folder / "0.1.0"
    for name in ("index.html", "a/index.html", "a/style.css", "../dev/index.html"):
        (version / name).parent.mkdir(parents=True, exist_ok=True)
        (version / name).write_text("")
    (version / "a/index.html").write_text("".join(f'<a href="{link}">' for link in links))
    return [line.rsplit(" ")[-1] for line in versions.dead_links(version)]


def test_dead_links_are_found(tmp_path: Path) -> None:
    assert dead(tmp_path, "../b/", "b.css") == ["../b/", "b.css"]
    assert dead(tmp_path, "..", "../", "./", "style.css?1", "#x", "https://a.invalid/b") == []


def test_links_stay_in_their_version(tmp_path: Path) -> None:
    crossing = [
        "../../dev/",
        "/counterweight/",
        "/counterweight/dev/",
        "/counterweight/dev/index.html",
    ]
    assert dead(tmp_path, *crossing) == sorted(crossing)
    assert dead(tmp_path, "/counterweight/0.1.0", "/counterweight/0.1.0/a/style.css") == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a release, and of a tree with one more page and one more sentence."""
    if not PYTHON.exists():
        if os.environ.get("CI"):
            pytest.fail("no .venv-site: .ci/setup site")
        pytest.skip("no .venv-site: .ci/setup site")
    tree = tmp_path_factory.mktemp("tree")
    for name in collect.tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)

    def run(*command: str) -> None:
        subprocess.run(command, cwd=tree, check=True, timeout=500)

    run("git", "init", "--quiet")
    run("git", "add", "--all")
    run("git", *("-c", "user.name=x", "-c", "user.email=x@y.invalid"), "commit", "--quiet", "-mx")
    run("git", "tag", "v0.1.0")
    (tree / "tests/new.md").write_text("# New\n\n[Start](../README.md)\n")
    with (tree / "README.md").open("a") as readme:
        readme.write("\nThis sentence is newer than the release.\n")
    out = tree / "build/site"
    for _ in range(2):  # the second time the release is there
        run(str(PYTHON), "deploy/site/versions.py", str(out))
    return out


def test_each_version_has_its_own_pages(site: Path) -> None:
    assert {one.name for one in site.iterdir()} == {
        *("0.1.0", "latest", "dev", "versions.json", "index.html", "404.html")
    }
    texts = {name: (site / name / "index.html").read_text() for name in ("0.1.0", "latest", "dev")}
    newer = [name for name, text in texts.items() if "newer than the release" in text]
    assert newer == ["dev"]
    assert (site / "dev/tests/new/index.html").is_file()
    assert not (site / "0.1.0/tests/new").exists()
    assert [list(versions.dead_links(site / name)) for name in texts] == [[], [], []]


def test_the_switcher_has_all_versions(site: Path) -> None:
    listed = json.loads((site / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in listed] == [
        ("0.1.0", ["latest"]),
        ("dev", []),
    ]
    for one in listed:
        page = (site / one["version"] / "index.html").read_text()
        assert '"version":{"provider":"mike"}' in page.replace(" ", "")
        # By the sitemap the switcher finds the same page of the other version.
        sitemap = (site / one["version"] / "sitemap.xml").read_text()
        assert f"<loc>{versions.ADDRESS}{one['version']}/kernels/METHODS/</loc>" in sitemap
    assert "url=latest/" in (site / "index.html").read_text()


@pytest.mark.parametrize("version", ["0.1.0", "latest", "dev"])
def test_the_latest_release_is_canonical(site: Path, version: str) -> None:
    def canonical(page: str) -> str:
        (address,) = versions.CANONICAL.findall((site / version / page).read_text())
        text = (site / version / page).read_text()
        return text.split(address)[1].split('"')[0].removeprefix(versions.ADDRESS)

    assert canonical("index.html") == "latest/"
    assert canonical("kernels/METHODS/index.html") == "latest/kernels/METHODS/"
    if version == "dev":
        assert canonical("tests/new/index.html") == "dev/tests/new/"
