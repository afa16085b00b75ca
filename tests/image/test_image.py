"""The container image: valid, the same bytes twice, small, and without other programs."""

from __future__ import annotations

import hashlib
import json
import pathlib
import stat
import subprocess

import layers
import pytest
from conftest import pack
from server_process import binary

MIB = 2**20
pytestmark = pytest.mark.server_only


def test_digests_and_sizes_of_the_layout_hold(image: pathlib.Path) -> None:
    layout = image / "oci"
    manifest = layers.manifest(layout)
    config = json.loads(layers.blob(layout, manifest["config"]))
    plain = ["sha256:" + hashlib.sha256(one).hexdigest() for one in layers.layers(layout)]
    assert config["rootfs"] == {"type": "layers", "diff_ids": plain}
    assert len(config["history"]) == len(plain)
    named = {one["digest"].partition(":")[2] for one in [manifest["config"], *manifest["layers"]]}
    index = json.loads((layout / "index.json").read_text())["manifests"][0]
    named.add(index["digest"].partition(":")[2])
    assert {file.name for file in (layout / "blobs/sha256").iterdir()} == named


def test_packing_twice_gives_the_same_bytes(image: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # Time zone, language and umask differ between machines.
    pack(f"--out={tmp_path}", TZ="Asia/Kathmandu", LC_ALL="C", umask=0o077)
    first = {f.relative_to(image): f.read_bytes() for f in image.rglob("*") if f.is_file()}
    second = {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    assert first == second


def test_the_image_is_small(image: pathlib.Path, tree: pathlib.Path) -> None:
    (archive,) = image.glob("*.tar")
    packed = archive.stat().st_size
    plain = sum(f.stat().st_size for f in tree.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"{packed / MIB:.1f} MiB packed, {plain / MIB:.1f} MiB unpacked")
    assert packed < 30 * MIB
    assert plain < 60 * MIB


def test_the_configuration_names_user_program_and_labels(image: pathlib.Path) -> None:
    layout = image / "oci"
    config = json.loads(layers.blob(layout, layers.manifest(layout)["config"]))
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Entrypoint"] == ["/usr/bin/counterweight-server"]
    assert config["config"]["StopSignal"] == "SIGTERM"
    labels = config["config"]["Labels"]
    said = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True)
    version = labels["org.opencontainers.image.version"]
    revision = labels["org.opencontainers.image.revision"]
    assert said.stdout.strip() == f"counterweight-server {version} ({revision})"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.created"] == config["created"]


def test_the_server_is_the_only_program(image: pathlib.Path) -> None:
    members = layers.members(image / "oci")
    programs = {
        member.name
        for member in members
        if member.isfile() and member.mode & stat.S_IXUSR and ".so" not in member.name
    }
    assert programs == {"usr/bin/counterweight-server"}
    # Ids of root, no set-user-ID files, nothing but /tmp that another user can write.
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 0)}
    assert not [member.name for member in members if member.mode & (stat.S_ISUID | stat.S_ISGID)]
    writable = {m.name for m in members if not m.issym() and m.mode & stat.S_IWOTH}
    assert writable == {"tmp"}


def test_each_library_has_its_package_in_the_bill_and_its_licence(
    image: pathlib.Path, tree: pathlib.Path
) -> None:
    bill = json.loads((tree / "usr/share/doc/counterweight-server/sbom.spdx.json").read_text())
    assert bill == json.loads((image / "sbom.spdx.json").read_text())
    listed = {package["name"]: package["versionInfo"] for package in bill["packages"]}
    links = [one for one in bill["relationships"] if one["relationshipType"] == "DEPENDS_ON"]
    known = {package["SPDXID"] for package in bill["packages"]}
    assert {one["relatedSpdxElement"] for one in links} <= known
    libraries = [f for f in tree.rglob("*.so*") if f.is_file() and not f.is_symlink()]
    assert len(libraries) >= 5  # a release's server loads glibc alone
    packages = owners()
    for library in libraries:
        name = packages[f"/{library.relative_to(tree / 'usr')}"]
        said = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", name],
            capture_output=True,
            text=True,
            check=True,
        )
        assert listed[name] == said.stdout, library
        assert (tree / "usr/share/doc" / name / "copyright").stat().st_size > 0
        control = (tree / "var/lib/dpkg/status.d" / name).read_text()
        assert f"\nVersion: {said.stdout}\n" in control


def owners() -> dict[str, str]:
    """Returns the package of each installed library, from dpkg's own lists."""
    found = {}
    for path in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
        for line in path.read_text().splitlines():
            if ".so" in line:
                found[line.removeprefix("/usr")] = path.stem.partition(":")[0]
    return found


def test_a_program_that_is_missing_is_one_sentence(tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match=r"^image: .*no-such-program") as refused:
        pack(f"--program={tmp_path}/no-such-program", f"--out={tmp_path}")
    assert "Traceback" not in str(refused.value)
