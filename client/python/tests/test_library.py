"""A library that is missing: the error has the way to get one, for this kind of installation."""

from __future__ import annotations

import pathlib

import pytest

import counterweight_rl as cw
from counterweight_rl.local import library
from counterweight_rl.status import StatusCode


def message(monkeypatch: pytest.MonkeyPatch, package: pathlib.Path) -> str:
    """Returns the error of the target "local:" where the package is at ``package``."""
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(library, "__file__", str(package / "local/library.py"))
    library.load.cache_clear()
    with pytest.raises(cw.CounterweightError) as raised:
        cw.Client("local:")
    assert raised.value.code == StatusCode.FAILED_PRECONDITION
    library.load.cache_clear()
    return str(raised.value)


def test_an_installed_package_without_it_names_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    package = tmp_path / "lib/python3.13/site-packages/counterweight_rl"
    text = message(monkeypatch, package)
    assert f"{package}/libcounterweight.so is missing" in text
    assert "pip install dist/counterweight_rl-*.whl" in text
    assert "make wheel" in text
    assert "build/release" not in text


def test_a_checkout_without_it_names_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/build").touch()
    text = message(monkeypatch, tmp_path / "client/python/counterweight_rl")
    assert f"{tmp_path}/build/release/libcounterweight.so is missing" in text
    assert ".ci/build release counterweight_embedded" in text
    assert "make wheel" not in text
