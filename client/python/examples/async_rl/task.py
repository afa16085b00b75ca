"""The task: sums of short lists of numbers, spoken in characters, checked by a program.

A prompt is ``3+5+11?``. An answer may calculate first, ``3+5=8;8+11=19;:19``, or guess, ``:19``;
it ends with a line break. The reward is 1 for the right sum after the colon, else 0.
"""

from __future__ import annotations

import random
import re

CHARACTERS = "\n0123456789+=:;?"
END = CHARACTERS.index("\n")
LONGEST_ANSWER = 32
_NUMBERS = (2, 4)
_LARGEST = 9


def encode(text: str) -> list[int]:
    return [CHARACTERS.index(character) for character in text]


def decode(tokens: list[int]) -> str:
    return "".join(CHARACTERS[token] for token in tokens)


def numbers(source: random.Random) -> list[int]:
    return [source.randint(1, _LARGEST) for _ in range(source.randint(*_NUMBERS))]


def prompt(terms: list[int]) -> str:
    return "+".join(map(str, terms)) + "?"


def reward(terms: list[int], answer: str) -> float:
    found = re.search(r":(\d+)\n$", answer)
    return float(found is not None and int(found[1]) == sum(terms))


def demonstration(source: random.Random) -> str:
    """A prompt with an answer, imperfect on purpose, so that there is something to learn."""
    terms = numbers(source)
    if source.random() < 0.3:
        return f"{prompt(terms)}:{_blurred(sum(terms), source)}\n"
    said, total = "", terms[0]
    for term in terms[1:]:
        after = _blurred(total + term, source)
        said += f"{total}+{term}={after};"
        total = after
    return f"{prompt(terms)}{said}:{total}\n"


def _blurred(number: int, source: random.Random) -> int:
    return max(0, number + source.randint(-2, 2)) if source.random() < 0.12 else number
