"""The client and the server, end to end."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import counterweight_rl as cw
import grpc
import numpy as np
import pytest
from batches import packed, padded_batch
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import (
    correction_service_pb2_grpc as service_grpc,
)
from generated_stream import read_stream, stream_frames
from server_process import ServerProcess
from transports import ARRAYS, LOSS, assert_same

ALL = ("weights", "keep_mask", "token_reasons", "sequence_reasons")
# Weights at every level and rules at every level.
METHODS: list[Any] = [
    "token_tis",
    "seq_mis",
    "geo_rs_token_tis",
    cw.Dialect(
        "verl",
        {
            "rollout_is": "sequence",
            "rollout_is_threshold": 2.0,
            "rollout_is_batch_normalize": True,
            "rollout_rs": "token_k1,seq_mean_k3,seq_max_k2",
            "rollout_rs_threshold": "0.7_1.6,0.05,0.3",
        },
    ),
    cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source=cw.RatioSource.OLD_ROLLOUT,
            level=cw.Level.PREFIX,
            bound=cw.Bound.MASK,
            lower=0.8,
            upper=1.2,
        ),
        rules=[
            cw.RejectionRule(
                ratio_source=cw.RatioSource.CURRENT_OLD,
                estimator=cw.Estimator.K2,
                aggregation=cw.Aggregation.PREFIX_MEAN,
                upper=0.05,
                condition=cw.RuleCondition.NEGATIVE_ADVANTAGE,
            )
        ],
        rule_evaluation=cw.RuleEvaluation.SEQUENTIAL,
    ),
]


def same_bytes(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_truncated_weights(client: cw.Client) -> None:
    """Known answer: ratios 1, 4 and 1/2, truncated at 2."""
    rollout = np.log(np.array([[0.5, 0.1, 0.8, 0.1]], np.float32))
    old = np.log(np.array([[0.5, 0.4, 0.4, 0.9]], np.float32))
    mask = np.array([[True, True, True, False]])
    result = client.correct(
        rollout_log_probs=rollout,
        old_log_probs=old,
        response_mask=mask,
        method=cw.Preset("token_tis", upper=2.0),
    )
    assert result.weights is not None
    assert result.keep_mask is not None
    np.testing.assert_allclose(result.weights, [[1, 2, 0.5, 0]], rtol=1e-6)
    np.testing.assert_array_equal(result.keep_mask, mask)
    assert result.keep_mask.dtype == np.bool_
    assert result.token_reasons is None
    assert result.loss is None
    assert result.backend in ("cpu", "cuda")
    assert result.numerics_version == client.server_info().numerics_version
    assert result.timing.compute_seconds >= 0


def test_rules_say_what_they_dropped(client: cw.Client) -> None:
    rollout = np.zeros((2, 3), np.float32) - 2
    old = rollout.copy()
    old[1, 2] += 5
    rule = cw.RejectionRule(
        ratio_source=cw.RatioSource.OLD_ROLLOUT,
        estimator=cw.Estimator.RATIO,
        aggregation=cw.Aggregation.ALL,
        upper=10.0,
        name="veto",
    )
    result = client.correct(
        rollout_log_probs=rollout,
        old_log_probs=old,
        response_mask=np.ones((2, 3), np.int64),
        method=cw.CorrectionConfig(rules=[rule]),
        outputs=("sequence_reasons", "keep_mask", "token_reasons"),
    )
    assert result.weights is None
    assert result.keep_mask is not None
    assert result.keep_mask.dtype == np.int64
    np.testing.assert_array_equal(result.keep_mask, [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(result.token_reasons, [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(result.sequence_reasons, [0, 1])
    assert result.rules == (cw.RuleSummary("veto", 3, 1),)


@pytest.mark.parametrize("transport", ["unary", "stream", "shared_memory"])
def test_without_metrics_the_rest_is_the_same(sharing: ServerProcess, transport: str) -> None:
    batch = padded_batch(40, 900)
    label = f"quiet-{transport}"
    published = f'counterweight_drift_batches_total{{run="{label}"}}'
    with cw.Client(sharing.address, transport=transport) as client:

        def run(**options: Any) -> cw.Result[Any]:
            return client.correct(method=LOSS, outputs=(*ARRAYS, "loss"), **options, **batch)

        expected = run()
        result = run(metrics=False, run=label)
        assert published not in sharing.scrape()
        run(run=label)
        assert sharing.metric(published) >= 1
    assert expected.metrics
    assert expected.rules
    assert_same(result, dataclasses.replace(expected, metrics={}, rules=()))


@pytest.mark.parametrize("method", METHODS, ids=["tis", "mis", "geo", "verl", "config"])
@pytest.mark.parametrize(("num_sequences", "length"), [(6, 37), (3, 9000)])
def test_packed_is_padded(client: cw.Client, method: Any, num_sequences: int, length: int) -> None:
    """The bytes are the same, also of rows longer than a segment of 4096 positions."""
    batch = padded_batch(num_sequences, length)
    keep = batch["response_mask"].astype(bool)
    wide = client.correct(method=method, outputs=ALL[1:], **batch)
    flat = client.correct(method=method, outputs=ALL[1:], **packed(batch))
    for name in ("keep_mask", "token_reasons"):
        assert same_bytes(getattr(wide, name)[keep], getattr(flat, name))
    assert same_bytes(wide.sequence_reasons, flat.sequence_reasons)
    assert wide.metrics.keys() == flat.metrics.keys()
    for name, value in wide.metrics.items():
        np.testing.assert_equal(flat.metrics[name], value, err_msg=name)
    wide_weights = client.correct(method=method, **batch).weights
    flat_weights = client.correct(method=method, **packed(batch)).weights
    assert (wide_weights is None) == (flat_weights is None)
    if wide_weights is not None:
        assert (wide_weights[~keep] == 0).all()
        assert same_bytes(wide_weights[keep], flat_weights)


def test_float64_and_float16_are_converted(client: cw.Client) -> None:
    batch = padded_batch()
    halves = {k: v.astype(np.float16) for k, v in batch.items() if k != "response_mask"}
    mask = batch["response_mask"]

    def run(dtype: Any) -> cw.Result[Any]:
        inputs = {name: half.astype(dtype) for name, half in halves.items()}
        return client.correct(method="token_tis", response_mask=mask, **inputs)

    expected = run(np.float32)
    for dtype in (np.float16, np.float64, ">f4"):
        result = run(dtype)
        assert same_bytes(result.weights, expected.weights)
        np.testing.assert_equal(result.metrics, expected.metrics)


def test_every_preset_is_its_config(client: cw.Client) -> None:
    """The configurations of ListMethods give the same answers as the names."""
    methods = client.list_methods()
    assert {"token_tis", "seq_mis", "geo_rs_token_tis", "icepop", "opsm"} <= {
        m.name for m in methods
    }
    batch = padded_batch()
    for method in methods:
        assert method.summary
        by_name = client.correct(method=method.name, **batch)
        by_config = client.correct(method=method.config, **batch)
        by_parameters = client.correct(
            method=cw.Preset(method.name, **{p.name: p.default_value for p in method.parameters}),
            **batch,
        )
        for other in (by_config, by_parameters):
            assert same_bytes(by_name.weights, other.weights), method.name
            assert same_bytes(by_name.keep_mask, other.keep_mask), method.name
            assert same_bytes(by_name.gradient, other.gradient), method.name
            assert by_name.loss == other.loss, method.name
            assert by_name.rules == other.rules, method.name


def test_parameters_matter(client: cw.Client) -> None:
    batch = padded_batch(spread=1.0)
    tight = client.correct(method=cw.Preset("token_tis", upper=1.5), **batch).weights
    loose = client.correct(method=cw.Preset("token_tis", upper=3.0), **batch).weights
    assert tight is not None
    assert loose is not None
    assert tight.max() == np.float32(1.5)
    assert loose.max() == np.float32(3.0)


@pytest.mark.parametrize("policy", ["drop", "neutralize"])
def test_non_finite_policies(client: cw.Client, policy: str) -> None:
    batch = padded_batch()
    batch["old_log_probs"][0, 2] = np.nan
    batch["rollout_log_probs"][1, 0] = -np.inf
    result = client.correct(method="token_tis", non_finite=policy, outputs=ALL, **batch)
    assert result.non_finite_tokens == 2
    assert result.weights is not None
    assert np.isfinite(result.weights).all()
    kept = result.keep_mask[[0, 1], [2, 0]].tolist()  # type: ignore[index]
    if policy == "drop":
        assert kept == [0, 0]
        # The last bit of 16 is for non-finite tokens.
        assert result.token_reasons[[0, 1], [2, 0]].tolist() == [1 << 15] * 2  # type: ignore[index]
    else:
        assert kept == [1, 1]
        assert result.weights[[0, 1], [2, 0]].tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(1, 1), (4, 0), (0, 5), (0, 0), (3, 4)])
def test_nothing_to_correct(client: cw.Client, shape: tuple[int, int]) -> None:
    """Empty batches, empty rows and batches that are all masked."""
    zeros = np.zeros(shape, np.float32)
    result = client.correct(
        rollout_log_probs=zeros - 1,
        old_log_probs=zeros - 1,
        response_mask=zeros.astype(bool),
        method="token_tis",
        outputs=ALL,
    )
    for name in ALL[:3]:
        assert getattr(result, name).shape == shape
        assert not getattr(result, name).any()
    assert result.sequence_reasons is not None
    assert result.sequence_reasons.shape == shape[:1]


def test_threads_get_the_same_bytes(client: cw.Client) -> None:
    batch = padded_batch(8, 5000)
    expected = client.correct(method="token_tis", **batch)
    results: list[cw.Result[Any]] = []

    def work() -> None:
        results.append(client.correct(method="token_tis", **batch))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        assert same_bytes(result.weights, expected.weights)
        np.testing.assert_equal(result.metrics, expected.metrics)
    assert len({r.request_id for r in results}) == 8


def test_generated_stubs_get_the_same_answer(server: ServerProcess, client: cw.Client) -> None:
    """The client's own framing follows the public contract."""
    batch = padded_batch()
    request = service_pb2.CorrectRequest()
    request.layout.padded.num_sequences, request.layout.padded.length = batch["response_mask"].shape
    request.method.preset.name = "token_tis"
    for name, array in batch.items():
        request.tensors.add(
            role=f"TENSOR_ROLE_{name.upper()}",
            dtype="D_TYPE_U8" if name == "response_mask" else "D_TYPE_F32",
            data=array.tobytes(),
        )
    with grpc.insecure_channel(server.address) as channel:
        stub = service_grpc.CorrectionServiceStub(channel)
        response = stub.Correct(request, timeout=60)
        frames = iter(stream_frames(batch, chunk_bytes=1001))
        streamed, outputs = read_stream(stub.CorrectStream(frames, timeout=60))
    result = client.correct(method="token_tis", **batch)
    assert [t.data for t in response.tensors] == [
        result.weights.tobytes(),
        result.keep_mask.tobytes(),
    ]
    assert dict(response.metrics) == result.metrics
    assert response.request_id
    assert outputs == [t.data for t in response.tensors]
    assert dict(streamed.metrics) == result.metrics


def test_server_info(client: cw.Client) -> None:
    info = client.server_info()
    assert info.version
    assert info.backend in ("cpu", "cuda")
    assert info.threads >= 1
    assert info.limits.max_message_bytes == 256 << 20
    assert info.limits.max_tokens > 0
    assert "verl" in info.dialects
