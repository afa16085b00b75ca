"""Responses of vLLM and SGLang: the engine's log-probs, for rows that name them by id."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterweight_rl.arrays.version_spans import spans_of
from counterweight_rl.audit.rows import Array, SourceError

SUFFIXES = (".jsonl", ".json")
NO_RESPONSE = "rows whose response_id no response has"
SEVERAL = "rows whose response_id several responses have"
OTHER_LENGTH = "rows with as many tokens as neither the response nor its part in the mask"
Message = Mapping[str, Any]


@dataclass(frozen=True)
class Response:
    """One completion.

    Attributes:
        log_probs: Of its sampled tokens, float32; NaN where the engine has none. vLLM writes
            -9999.0 there, which stays: the doctor names it.
        versions: Of the weights that sampled each token, int64; -1 = unknown.
    """

    log_probs: Array
    versions: Array

    def at(self, mask: Array) -> tuple[Array, Array] | None:
        """Log-probs and versions at the positions of a row; None: it has other tokens.

        Args:
            mask: Those of a row with the same positions, or one that counts the sampled ones.
        """
        if len(mask) == len(self.log_probs):
            return self.log_probs, self.versions
        places = np.flatnonzero(mask)
        if len(places) != len(self.log_probs):
            return None
        log_probs, versions = np.zeros(len(mask), np.float32), np.full(len(mask), -1)
        log_probs[places], versions[places] = self.log_probs, self.versions
        return log_probs, versions


def is_response(message: Message) -> bool:
    """Whether an object is a response of one of these engines."""
    info = message.get("meta_info")
    return isinstance(message.get("choices"), list) or isinstance(info, dict)


class Responses:
    """The responses of a file or folder, which stay in the files. Thread-safe.

    Attributes:
        files: Those that have some.
    """

    def __init__(self, place: str) -> None:
        """Reads all files once, for the ids.

        Raises:
            OSError: One cannot be read.
        """
        root = pathlib.Path(place)
        found = [root] if root.is_file() else sorted(root.rglob("*"))
        self._files = [each for each in found if each.suffix in SUFFIXES and each.is_file()]
        self._identities = [_identity(each) for each in self._files]
        # The file, first byte and size of what has the id; None: several have it.
        self._places: dict[str, tuple[int, int, int] | None] = {}
        self.files: set[pathlib.Path] = set()
        for i, path in enumerate(self._files):
            for begin, size in _texts(path):
                for name, _ in self._read(i, begin, size):
                    self._places[name] = None if name in self._places else (i, begin, size)
                    self.files.add(path.resolve())
        # Some, because a list has the rows of a whole batch.
        self._parsed = functools.lru_cache(maxsize=4)(self._read_all)

    def at(self, name: str | None, mask: Array) -> tuple[Array, Array] | str:
        """``Response.at`` of the response with an id, or the reason why there is none.

        Raises:
            SourceError: Its file has changed.
        """
        where = self._places.get(name or "")
        if where is None:
            return SEVERAL if name in self._places else NO_RESPONSE
        path = self._files[where[0]]
        if _identity(path) != self._identities[where[0]]:
            raise SourceError(f"{path} changed while it was read")
        return self._parsed(*where)[name or ""].at(mask) or OTHER_LENGTH

    def _read_all(self, file: int, begin: int, size: int) -> Mapping[str, Response]:
        return dict(self._read(file, begin, size))

    def _read(self, file: int, begin: int, size: int) -> Iterator[tuple[str, Response]]:
        with self._files[file].open("rb") as opened:
            text = os.pread(opened.fileno(), size, begin)
        try:
            message = json.loads(text)
        except ValueError:
            return  # rows that name it are counted
        for each in message if isinstance(message, list) else [message]:
            # Others are no responses; rows that name them are counted too.
            with contextlib.suppress(AttributeError, IndexError, TypeError):
                yield from _completions(each)


@functools.lru_cache(maxsize=4)
def opened(place: str) -> Responses:
    """This process's responses of a place.

    Raises:
        SourceError: They cannot be read.
    """
    try:
        return Responses(place)
    except OSError as error:
        raise SourceError(f"{place} cannot be read: {error.strerror or error}") from error


def _texts(path: pathlib.Path) -> Iterator[tuple[int, int]]:
    if path.suffix == ".json":
        yield 0, path.stat().st_size
        return
    begin = 0
    with path.open("rb") as file:
        for line in file:
            yield begin, len(line)
            begin += len(line)


def _completions(message: Message) -> Iterator[tuple[str, Response]]:
    """The completions of a response by id: "ID", and "ID/INDEX" of several."""
    info, choices = message.get("meta_info"), message.get("choices")
    if isinstance(info, dict):
        values = info.get("output_token_logprobs_val")
        if values is None:
            values = [each[0] for each in info.get("output_token_logprobs") or ()]
        yield from _completion(info.get("id"), values, info)
    elif isinstance(choices, list):
        for i, choice in enumerate(choices):
            of = choice.get("logprobs") or {}
            values = of.get("token_logprobs")
            if values is None:
                values = [each.get("logprob") for each in of.get("content") or ()]
            name = message.get("id")
            if len(choices) > 1:
                name = f"{name}/{choice.get('index', i)}"
            has_versions = any("weight_version" in each for each in choice)
            yield from _completion(name, values, choice if has_versions else message)


def _completion(name: Any, values: Any, labels: Message) -> Iterator[tuple[str, Response]]:
    try:
        log_probs = np.array(values, np.float32)
    except (TypeError, ValueError):
        return
    if log_probs.ndim != 1 or not len(log_probs) or not isinstance(name, str):
        return
    versions = np.full(len(log_probs), -1)
    spans = labels.get("weight_versions")
    if spans is None:
        spans = [(labels.get("weight_version"), 0, len(log_probs))]
    try:
        for _, begin, end, version in spans_of([spans]):
            versions[begin:end] = version
    except (TypeError, ValueError):  # a label without a number
        versions[:] = -1
    yield name, Response(log_probs, versions)


def _identity(path: pathlib.Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
