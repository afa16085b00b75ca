"""Authorities and certificates of a test's own, made by the program openssl."""

from __future__ import annotations

import datetime
import os
import pathlib
import subprocess
from dataclasses import dataclass

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
# Python's ssl is strict since 3.13: authorities need the first, other certificates the second.
_SIGNS = "keyUsage=critical,keyCertSign,cRLSign"
_SIGNED = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: pathlib.Path
    key: pathlib.Path

    def flags(self) -> list[str]:
        return [f"--tls_certificate={self.certificate}", f"--tls_key={self.key}"]

    def copy_to(self, other: Pair) -> None:
        replace(other.certificate, self.certificate.read_bytes())
        replace(other.key, self.key.read_bytes())


class Authority:
    """Signs certificates for localhost and 127.0.0.1, and for clients."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        files = ["-keyout", self._key, "-out", self.certificate]
        _openssl(
            *("req", "-x509", *_NEW_KEY, *files, "-days", "30", "-subj", f"/CN={name}"),
            *("-addext", _SIGNS),
        )

    def intermediate(self, name: str) -> Authority:
        """An authority below this one, whose certificates need its own beside them."""
        below = object.__new__(Authority)
        below._folder, below._name = self._folder, name
        extensions = f"basicConstraints=critical,CA:true\n{_SIGNS}\n"
        pair = self.sign(name, days=30, extensions=extensions)
        below.certificate, below._key = pair.certificate, pair.key
        return below

    def sign(
        self,
        name: str,
        sans: str = "DNS:localhost,IP:127.0.0.1",
        days: int = 30,
        extensions: str = "",
    ) -> Pair:
        """A certificate that ends in ``days``, negative ones included."""
        start = self._folder / f"{self._name}-{name}"
        request, wanted = start.with_suffix(".csr"), start.with_suffix(".ext")
        made = Pair(start.with_suffix(".crt"), start.with_suffix(".key"))
        wanted.write_text(f"subjectAltName={sans}\n{_SIGNED}{extensions}")
        _openssl(
            "req", "-new", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}"
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", *_validity(days), "-extfile", wanted),
            *("-out", made.certificate),
        )
        return made


def _validity(days: int) -> list[str]:
    listed = subprocess.run(
        ["openssl", "x509", "-help"], capture_output=True, text=True, check=True
    )
    if days >= 0 or "-not_after" not in listed.stderr:
        return ["-days", str(days)]
    # Since version 3.4 openssl refuses an end before the start, and has options for both.
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days)
    start = end - datetime.timedelta(1)
    return ["-not_before", f"{start:%Y%m%d%H%M%SZ}", "-not_after", f"{end:%Y%m%d%H%M%SZ}"]


def replace(path: pathlib.Path, content: bytes) -> None:
    """Puts another file in the place of one, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)


def _openssl(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
