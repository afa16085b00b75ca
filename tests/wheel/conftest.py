from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator

import counterweight_rl as cw
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests/e2e"))


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    return pathlib.Path(os.environ["WHEEL"])


@pytest.fixture(scope="session")
def installed(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The bin folder of an environment with the wheel."""
    # Not before the path above has its modules.
    from environments import install

    return install(tmp_path_factory.mktemp("installed"), wheel)


@pytest.fixture(scope="session")
def tree() -> Iterator[cw.Client]:
    """The library of build/release."""
    with pytest.MonkeyPatch.context() as patch:
        library = REPOSITORY / "build/release/libcounterweight.so"
        patch.setenv("COUNTERWEIGHT_LIBRARY", str(library))
        with cw.Client("local:") as client:
            yield client
