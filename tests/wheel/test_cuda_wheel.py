"""The wheel with the CUDA library, of CUDA=1 make wheel, installed beside the other."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import zipfile

import counterweight_rl as cw
import pytest
from environments import assert_answers, install, local_answers, run

WHEEL = os.environ.get("CUDA_WHEEL")

pytestmark = pytest.mark.skipif(not WHEEL, reason="CUDA=1 make wheel makes it")


@pytest.fixture(scope="module")
def with_cuda(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    assert WHEEL
    return install(tmp_path_factory.mktemp("with_cuda"), wheel, pathlib.Path(WHEEL))


def test_its_library_is_the_one_that_is_loaded(with_cuda: pathlib.Path) -> None:
    code = "from counterweight_rl.local import library; print(library.load()._name)"
    folder = with_cuda.parent / "lib"
    (expected,) = folder.glob("python*/site-packages/counterweight_rl_cu13/libcounterweight.so")
    assert run(with_cuda / "python", "-c", code).strip() == str(expected)


def test_without_a_gpu_it_says_why(with_cuda: pathlib.Path) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    code = "import counterweight_rl as cw; cw.Client('local:cuda')"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(with_cuda / "python", "-c", code, stderr=subprocess.PIPE)
    assert "no CUDA device can be used: " in caught.value.stderr
    assert "no CUDA backend" not in caught.value.stderr


def test_goldens_on_the_cpu(
    with_cuda: pathlib.Path, tree: cw.Client, tmp_path: pathlib.Path
) -> None:
    assert_answers(local_answers(with_cuda, tmp_path), tree)


def test_it_carries_code_for_gpus_and_its_licences(with_cuda: pathlib.Path) -> None:
    assert WHEEL
    with zipfile.ZipFile(WHEEL) as archive:
        names = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        assert b".nv_fatbin" in archive.read("counterweight_rl_cu13/libcounterweight.so")
        bill = json.loads(archive.read(names["sboms/counterweight.cdx.json"]))
        parts = {part["name"]: part["version"] for part in bill["components"]}
        assert {"nvidia-cuda-runtime", "libprotobuf-dev", "libunwind"} <= set(parts)
        for name, version in parts.items():
            assert len(archive.read(names[f"licenses/third_party/{name}-{version}"])) > 200
        requirement = f"Requires-Dist: counterweight-rl=={cw.__version__}".encode()
        assert requirement in archive.read(names["METADATA"])
