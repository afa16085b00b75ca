"""Bills of materials name what is in the artefacts, and archives forget the machine that wrote them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import time
import zipfile

import archive
import assemble
import bills
import debian
import machine
import pytest
import tag

RELEASE = tag.Release("0.1.0", "c0ffee", 1_700_000_000)
ROOT = pathlib.Path(__file__).resolve().parents[2]
METADATA = """Metadata-Version: 2.1
Name: counterweight-rl
Version: 0.1.0
Requires-Dist: Some_Numbers>=1.26
Requires-Dist: grpcio>=1.66; extra == "remote"
"""
COMPONENT = {"name": "libssl-dev", "version": "3.0", "purl": "pkg:deb/debian/libssl-dev@3.0"}


def purls(document: bytes) -> dict[str, set[str]]:
    """Returns the parts by their relation, after checks of the document's form."""
    bill = json.loads(document)
    assert bill["spdxVersion"] == "SPDX-2.3"
    assert bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    packages = {one["SPDXID"]: one for one in bill["packages"]}
    assert len(packages) == len(bill["packages"])
    first, *others = bill["relationships"]
    assert first["relationshipType"] == "DESCRIBES"
    assert first["relatedSpdxElement"] == bills.ARTEFACT
    found: dict[str, set[str]] = {}
    for one in others:
        ends = {one["spdxElementId"], one["relatedSpdxElement"]}
        (part,) = ends - {bills.ARTEFACT}
        (reference,) = packages.pop(part)["externalRefs"]
        found.setdefault(one["relationshipType"], set()).add(reference["referenceLocator"])
    assert set(packages) == {bills.ARTEFACT}
    return found


def source(files: dict[str, str], mtime: float = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid = len(text), int(mtime), int(mtime) % 1000
            made.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def test_a_wheels_bill_has_its_libraries_and_requirements() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("a-0.1.0.dist-info/METADATA", METADATA)
        wheel.writestr(
            "a-0.1.0.dist-info/sboms/a.cdx.json", json.dumps({"components": [COMPONENT]})
        )
    content = file.getvalue()
    document = bills.write("a.whl", content, bills.of_wheel(content), RELEASE)
    assert purls(document) == {
        "STATIC_LINK": {"pkg:deb/debian/libssl-dev@3.0"},
        "DEPENDS_ON": {"pkg:pypi/some-numbers"},
    }
    (subject,) = [p for p in json.loads(document)["packages"] if p["SPDXID"] == bills.ARTEFACT]
    assert subject["checksums"][0]["checksumValue"] == hashlib.sha256(content).hexdigest()
    assert subject["downloadLocation"].endswith("@c0ffee")


def test_a_sources_bill_has_what_compiles_it() -> None:
    content = source({"a-0.1.0/PKG-INFO": METADATA, "a-0.1.0/debian_packages.txt": "cmake\ng++\n"})
    assert purls(bills.write("a.tar.gz", content, bills.of_source(content), RELEASE)) == {
        "BUILD_DEPENDENCY_OF": {"pkg:deb/debian/cmake", "pkg:deb/debian/g++"},
        "DEPENDS_ON": {"pkg:pypi/some-numbers"},
    }


def deb(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns a Debian package with a program and a script."""
    tree = folder / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@b.invalid>\nDescription: a\n"
    )
    shutil.copy("/bin/true", tree / "usr/bin/a")
    (tree / "usr/bin/script").write_text("#!/bin/sh\n")
    path = folder / "a.deb"
    subprocess.run(["dpkg-deb", "-b", tree, path], check=True, capture_output=True)
    return path


def test_a_debian_packages_bill_has_the_libraries_that_its_programs_load(
    tmp_path: pathlib.Path,
) -> None:
    path = deb(tmp_path, "a")
    found = purls(bills.write("a.deb", path.read_bytes(), bills.of_deb(path), RELEASE))
    (libc,) = found.pop("DEPENDS_ON")
    assert libc.startswith("pkg:deb/debian/libc6@2.")
    assert not found


def test_the_servers_bill_has_what_is_linked_into_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "root/var/lib/dpkg"
    database.mkdir(parents=True)
    (database / "status").write_text(
        "Package: libgrpc-dev\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: a <a@b.invalid>\n"
        "Source: grpc (1.83.0-2)\nVersion: 1.83.0-2+b1\nDescription: a\n"
    )
    monkeypatch.setattr(debian, "SERVER_ROOT", tmp_path / "root")
    here = dataclasses.replace(machine.here(), server=tmp_path / "counterweight-server")
    monkeypatch.setattr(machine, "here", lambda: here)
    (tmp_path / "counterweight-server.linked").write_text("libgrpc-dev\n")
    path = deb(tmp_path, "counterweight-server")
    found = purls(bills.write("a.deb", path.read_bytes(), bills.of_deb(path), RELEASE))
    assert found["STATIC_LINK"] == {
        "pkg:deb/debian/libgrpc-dev@1.83.0-2+b1?arch=amd64&distro=debian-sid"
    }


def test_a_server_for_arm64_has_packages_of_two_folders(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name, architecture in (
        ("root", "libcli11-dev", "all"),
        ("root", "libgrpc-dev", "amd64"),
        ("root/arm64", "libgrpc-dev", "arm64"),
    ):
        database = tmp_path / folder / "var/lib/dpkg"
        database.mkdir(parents=True, exist_ok=True)
        with (database / "status").open("a") as status:
            status.write(
                f"Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\n"
                "Maintainer: a <a@b.invalid>\nVersion: 1.83.0-2+b1\nDescription: a\n\n"
            )
    monkeypatch.setattr(debian, "SERVER_ROOT", tmp_path / "root")
    (tmp_path / "counterweight-server.linked").write_text("libgrpc-dev:arm64\nlibcli11-dev\n")
    found = debian.linked(tmp_path / "counterweight-server")
    assert [(one.name, one.architecture) for one in found] == [
        ("libgrpc-dev", "arm64"),
        ("libcli11-dev", "all"),
    ]


def test_the_charts_bill_has_the_image() -> None:
    content = archive.chart(ROOT)
    found = purls(bills.write("a.tgz", content, bills.of_chart(content), RELEASE))
    assert list(found) == ["DEPENDS_ON"]
    (image,) = found["DEPENDS_ON"]
    assert image.startswith("pkg:oci/counterweight-server?tag=")


def test_the_bill_of_the_go_module_has_its_requirements() -> None:
    module = "module example.org/a\n\ngo 1.22.0\n\nrequire go.uber.org/b v1.0.0\n\nrequire (\n\texample.org/c v2.0.0 // indirect\n)\n"
    found = purls(bills.write("a", None, bills.of_go(module), RELEASE))
    assert found == {
        "DEPENDS_ON": {"pkg:golang/go.uber.org/b@v1.0.0", "pkg:golang/example.org/c@v2.0.0"}
    }


def test_an_archive_forgets_time_owner_and_order() -> None:
    files = {"a-1/b": "b", "a-1/a": "a"}
    once = archive.again(source(files, time.time()), 1_700_000_000)
    reverse = dict(reversed(files.items()))
    assert archive.again(source(reverse, 5), 1_700_000_000) == once
    with tarfile.open(fileobj=io.BytesIO(once)) as made:
        assert [(m.name, m.mtime, m.uid) for m in made] == [
            (n, 1_700_000_000, 0) for n in sorted(files)
        ]
    assert gzip.decompress(once) != gzip.decompress(archive.again(source(files), 1))


def test_the_folder_has_the_sums_of_its_files_and_nothing_older(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "release"
    assemble.write(folder, {"old": b""})
    assemble.write(folder, {"b": b"2", "a": b"1"})
    assert sorted(file.name for file in folder.iterdir()) == ["SHA256SUMS", "a", "b"]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)


def test_a_missing_artefact_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(tag.Refusal, match=r"has nothing where one a-\*\.whl is needed"):
        assemble.one(tmp_path, "a-*.whl")
    for name in ("a-1.whl", "a-2.whl"):
        (tmp_path / name).touch()
    with pytest.raises(tag.Refusal, match=r"has a-1\.whl, a-2\.whl where one"):
        assemble.one(tmp_path, "a-*.whl")


def test_a_server_of_another_commit_is_refused() -> None:
    def bill(commit: str) -> bytes:
        packages = [
            {"name": "libc6"},
            {"checksums": [], "downloadLocation": f"git+https://a@{commit}"},
        ]
        return json.dumps({"packages": packages}).encode()

    assemble.check_image(bill("c0ff"), RELEASE)
    with pytest.raises(tag.Refusal, match=r"the server is of commit abc, not of v0\.1\.0"):
        assemble.check_image(bill("abc"), RELEASE)
