"""Results in the trackers that trainers use; their packages are in the environment trackers."""

from __future__ import annotations

import math
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from counterweight_rl import Result, RuleSummary, Staleness, StalenessBucket, Timing, trackers

RESULT: Result[Any] = Result(
    weights=None,
    keep_mask=None,
    token_reasons=None,
    sequence_reasons=None,
    loss=0.5,
    gradient=None,
    metrics={
        "kl": 0.25,
        "k3": 0.125,
        "loss/policy": -2.0,
        "log_ratio_max": -math.inf,
        "ratio": math.nan,
    },
    rules=(RuleSummary("mean_k3", 7, 2),),
    non_finite_tokens=3,
    warnings=(),
    request_id="id",
    numerics_version=1,
    backend="cpu",
    timing=Timing(0.0, 0.0, 0.0, 0.0),
    staleness=Staleness(
        buckets=(
            StalenessBucket(0, 0, 6, 0.5, 0.25),
            StalenessBucket(1, 1, 0, math.nan, math.nan),
            StalenessBucket(3, 4, 1, -0.5, 0.125),
            StalenessBucket(9, None, 1, 2.0, 4.0),
        ),
        unknown_tokens=5,
        mean=1.5,
        max=9,
    ),
)
# LevelDB's log format.
_BLOCK, _FULL, _LAST = 32768, 1, 4
WRITTEN = {
    "counterweight/kl": 0.25,
    "counterweight/k3": 0.125,
    "counterweight/loss/policy": -2.0,
    "counterweight/loss/total": 0.5,
    "counterweight/non_finite_tokens": 3.0,
    "counterweight/rules/mean_k3/dropped_tokens": 7.0,
    "counterweight/rules/mean_k3/dropped_sequences": 2.0,
    "counterweight/staleness/mean": 1.5,
    "counterweight/staleness/max": 9.0,
    "counterweight/staleness/unknown_tokens": 5.0,
    "counterweight/staleness/0/tokens": 6.0,
    "counterweight/staleness/0/kl": 0.5,
    "counterweight/staleness/0/k3": 0.25,
    "counterweight/staleness/3-4/tokens": 1.0,
    "counterweight/staleness/3-4/kl": -0.5,
    "counterweight/staleness/3-4/k3": 0.125,
    "counterweight/staleness/9-or-more/tokens": 1.0,
    "counterweight/staleness/9-or-more/kl": 2.0,
    "counterweight/staleness/9-or-more/k3": 4.0,
}


def records(file: pathlib.Path) -> Iterator[bytes]:
    """Those of a file of Weights & Biases: LevelDB's log format behind a header of 7 bytes."""
    data, record = file.read_bytes(), b""
    assert data[:4] == b":W&B"
    at = 7
    while at + 7 <= len(data):
        remaining = _BLOCK - at % _BLOCK
        if remaining < 7:
            at += remaining
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (_FULL, _LAST):
            yield record
            record = b""


def test_weights_and_biases(tmp_path: pathlib.Path) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    settings = wandb.Settings(console="off", silent=True)
    with wandb.init(project="test", mode="offline", dir=str(tmp_path), settings=settings) as run:
        assert trackers.log(RESULT, 4, run) == WRITTEN
        # The module means its active run.
        trackers.log(RESULT, 5, wandb)
    # Its service has written all when it has ended.
    wandb.teardown()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found: dict[int, dict[str, float]] = {}
    for data in records(file):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.HasField("history"):
            items = {
                item.key or item.nested_key[0]: float(item.value_json)
                for item in record.history.item
            }
            found[int(items["_step"])] = {name: items[name] for name in WRITTEN}
    assert found == {4: WRITTEN, 5: WRITTEN}


def test_tensorboard(tmp_path: pathlib.Path) -> None:
    writers = pytest.importorskip("tensorboardX")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with writers.SummaryWriter(str(tmp_path)) as writer:
        trackers.log(RESULT, 4, writer)
        trackers.log(RESULT, np.int64(5), writer)
    events = accumulators.EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(WRITTEN)
    for name, value in WRITTEN.items():
        assert [(e.step, e.value) for e in events.Scalars(name)] == [(4, value), (5, value)]


def test_mlflow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    # Files are enough for a test; MLflow wants to hear that one means it.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    store = (tmp_path / "new").as_uri()
    mlflow.set_tracking_uri(store)
    with mlflow.start_run() as run:
        trackers.log(RESULT, 4, mlflow)
        trackers.log(RESULT, 5, mlflow)
    client = mlflow.MlflowClient(tracking_uri=store)
    assert client.get_run(run.info.run_id).data.metrics == WRITTEN
    history = client.get_metric_history(run.info.run_id, "counterweight/k3")
    assert [(point.step, point.value) for point in history] == [(4, 0.125), (5, 0.125)]


class Writer:
    """The interface of a SummaryWriter."""

    def __init__(self) -> None:
        self.written: dict[str, tuple[float, int]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.written[tag] = (scalar_value, global_step)


def test_a_dialects_names_can_stay_as_they_are() -> None:
    writer = Writer()
    trackers.log(RESULT, 0, writer, prefix="")
    assert writer.written["loss/policy"] == (-2.0, 0)
    assert not any(name.startswith("counterweight") for name in writer.written)


def test_a_loss_that_is_no_number_is_told() -> None:
    """Trainers look for it, where a mean over nothing is no news."""
    fields = {name: getattr(RESULT, name) for name in Result.__dataclass_fields__}
    broken: Result[Any] = Result(**{**fields, "loss": math.nan})
    assert math.isnan(trackers.scalars(broken)["counterweight/loss/total"])
    without: Result[Any] = Result(**{**fields, "loss": None, "rules": ()})
    assert set(trackers.scalars(without)) == {
        name for name in WRITTEN if not name.endswith("/total") and "rules" not in name
    }


def test_staleness_of_which_nothing_is_known() -> None:
    fields = {name: getattr(RESULT, name) for name in Result.__dataclass_fields__}
    nothing = Staleness(buckets=(), unknown_tokens=7, mean=math.nan, max=0)
    written = trackers.scalars(Result(**{**fields, "staleness": nothing}), prefix="")
    assert {n: v for n, v in written.items() if n.startswith("staleness")} == {
        "staleness/max": 0.0,
        "staleness/unknown_tokens": 7.0,
    }


def test_what_is_no_tracker_is_refused() -> None:
    with pytest.raises(TypeError, match="SummaryWriter or the module mlflow, not dict"):
        trackers.log(RESULT, 0, {})  # type: ignore[arg-type]


def test_a_step_is_an_integer() -> None:
    writer = Writer()
    with pytest.raises(TypeError):
        trackers.log(RESULT, 0.5, writer)  # type: ignore[arg-type]
    assert writer.written == {}
