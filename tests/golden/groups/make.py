"""Writes the answers of other systems' own group baselines, a JSON file a system.

Reads the systems' files from clones that have the commits of SOURCES; needs torch:

    python make.py verl=CLONE skyrl=CLONE nemo_rl=CLONE trl=CLONE openrlhf=CLONE slime=CLONE

A case of a file:

    function            its name in the system
    arguments           by the system's names, those of a block or of the call
    batch, note         the batch's name in batches.py, and what it is for
    rewards [B]         to be read as float32; null is NaN
    group_ids [B]       rows of one prompt have the same
    tokens, kept_tokens [B]  tokens of an answer, and those that are kept after rejection
    advantages [B]      float32, the value that each kept token of a row has; null is NaN; 0 for a
                        row without kept tokens, whatever the system's tensor has there
    advantages_float64  the same with float64 in the place of float32 in the system's code, only
                        where it differs by more than 1e-5 relative + 1e-6: there float32 cancels
    error               type and message in the place of advantages

In each answer all kept tokens of a row have one value. A NaN reward at a row without kept tokens
makes verl's and SkyRL's tensor NaN there. batches.py has the kept tokens; by_index.py and
by_shape.py have what is in a trainer's place.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import by_index
import by_shape
import numpy as np
import torch
from batches import Batch
from by_index import Estimator, Run
from sources import Source

SOURCES: dict[str, tuple[str, str, str, Callable[[Source], Iterator[Estimator]]]] = {
    "verl": (
        "verl-project/verl",
        "1dda039b9c6311889a9c9a26040677e1254814f9",
        by_index.VERL,
        by_index.verl,
    ),
    "skyrl": (
        "NovaSky-AI/SkyRL",
        "a9564572eb8e91076be43c1bd5e4615e3de17265",
        by_index.SKYRL,
        by_index.skyrl,
    ),
    "nemo_rl": (
        "NVIDIA-NeMo/RL",
        "7ea279abfbeb698b092856d0dab61e7cf39bc909",
        by_index.NEMO_RL,
        by_index.nemo_rl,
    ),
    "trl": (
        "huggingface/trl",
        "f2cd57710ae345ea6428ae95363267fcf38a3dc8",
        by_shape.TRL,
        by_shape.trl,
    ),
    "openrlhf": (
        "OpenRLHF/OpenRLHF",
        "3c3be6234e0cb353e76bb8019947db9dfe99fca7",
        by_shape.OPENRLHF,
        by_shape.openrlhf,
    ),
    "slime": (
        "THUDM/slime",
        "624b824a898ab0ec1fcb4d373004c7f3852bf515",
        by_shape.SLIME,
        by_shape.slime,
    ),
}


def case(estimator: Estimator, wide: Estimator, batch: Batch) -> dict[str, Any]:
    """Returns a batch with the function's answer, and that in float64 where it differs.

    Args:
        estimator: The function as it is.
        wide: The same with float64 in the place of float32.
        batch: Its input.
    """
    answer: dict[str, Any] = {
        "function": estimator.function,
        "arguments": {**estimator.arguments, **estimator.sizes(batch)},
        "batch": batch.name,
        "rewards": plain(batch.rewards),
        "group_ids": batch.group_ids,
        "tokens": batch.tokens,
        "kept_tokens": batch.kept_tokens,
    }
    try:
        rows = by_row(estimator.run(batch, torch.float32), batch)
    except (ValueError, RuntimeError) as error:
        answer["error"] = {"type": type(error).__name__, "message": str(error)}
    else:
        answer["advantages"] = plain(rows)
        exact = in_float64(wide.run, batch)
        if not np.allclose(rows, exact, rtol=1e-5, atol=1e-6, equal_nan=True):
            answer["advantages_float64"] = plain(exact)
    answer["note"] = "; ".join(filter(None, (batch.note, estimator.groups(batch))))
    return answer


def in_float64(run: Run, batch: Batch) -> np.ndarray:
    """Returns the rows' advantages with float64 as torch's default too."""
    torch.set_default_dtype(torch.float64)
    try:
        return by_row(run(batch, torch.float64), batch)
    finally:
        torch.set_default_dtype(torch.float32)


def by_row(advantages: torch.Tensor, batch: Batch) -> np.ndarray:
    """Returns the one value of a row's kept tokens, [B], 0 for a row without any."""
    rows = np.zeros(len(batch.rewards))
    for row, kept in enumerate(batch.kept_tokens):
        values = advantages[row, :kept].to(torch.float64).numpy()
        if kept:
            assert np.array_equal(values, np.broadcast_to(values[:1], kept), equal_nan=True)
            rows[row] = values[0]
    return rows


def plain(values: Any) -> list[float | None]:
    """Returns the shortest decimals that are the values in float32, and None for NaN."""
    return [None if math.isnan(v) else float(str(np.float32(v))) for v in values]


def write(system: str, clone: Path, folder: Path) -> None:
    repository, commit, file, estimators = SOURCES[system]
    ways = (estimators(Source(clone, repository, commit, wide=wide)) for wide in (False, True))
    pairs = zip(*ways, strict=True)
    cases = [case(one, wide, batch) for one, wide in pairs for batch in one.batches]
    heading = {"repository": repository, "commit": commit, "file": file}
    lines = ",\n".join(json.dumps(one, allow_nan=False) for one in cases)
    text = f'{{"source": {json.dumps(heading)},\n"cases": [\n{lines}\n]}}\n'
    (folder / f"{system}.json").write_text(text)
    print(f"{system}: {len(cases)} cases")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", nargs="+", metavar="SYSTEM=CLONE")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for system, _, clone in (text.partition("=") for text in options.clones):
        write(system, Path(clone), options.folder)


if __name__ == "__main__":
    main()
