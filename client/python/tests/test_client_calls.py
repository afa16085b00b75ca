"""The client's other calls, and clients in threads, with large messages, closed."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import (
    SHAPE,
    Request,
    Response,
    correct,
    sent,
)

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import method_pb2, tensor_pb2


def test_list_methods(server: FakeServer, client: cw.Client) -> None:
    config = method_pb2.CorrectionConfig(
        importance_weight=method_pb2.ImportanceWeight(
            ratio_source="RATIO_SOURCE_OLD_ROLLOUT",
            level="LEVEL_TOKEN",
            bound="BOUND_TRUNCATE",
            upper=2.0,
        )
    )
    server.methods = service_pb2.ListMethodsResponse(
        methods=[
            method_pb2.MethodInfo(
                name="token_tis",
                origin="counterweight",
                summary="Truncated.",
                config=config,
                parameters=[
                    method_pb2.ParameterInfo(name="upper", unit="ratio", default_value=2.0)
                ],
                formula="w = min(r, upper)",
                when_to_use="Always.",
                equivalents={"verl": '{"rollout_is": "token"}'},
            )
        ]
    )
    assert client.list_methods() == [
        cw.MethodInfo(
            name="token_tis",
            origin="counterweight",
            origin_name="",
            summary="Truncated.",
            reference="",
            config=cw.CorrectionConfig(
                importance_weight=cw.ImportanceWeight(
                    ratio_source=cw.RatioSource.OLD_ROLLOUT,
                    level=cw.Level.TOKEN,
                    bound=cw.Bound.TRUNCATE,
                    upper=2.0,
                )
            ),
            parameters=(cw.ParameterInfo("upper", "ratio", 2.0, ""),),
            formula="w = min(r, upper)",
            when_to_use="Always.",
            equivalents={"verl": '{"rollout_is": "token"}'},
        )
    ]


def test_server_info(server: FakeServer, client: cw.Client) -> None:
    server.info = service_pb2.GetServerInfoResponse(
        version="0.1.0",
        backend="cuda",
        threads=2,
        devices=[service_pb2.Device(index=1, name="H200", memory_bytes=1 << 37, uuid=b"u" * 16)],
        limits=service_pb2.Limits(max_tokens=64),
        dialects=["verl"],
    )
    info = client.server_info()
    assert info.backend == "cuda"
    assert info.devices == (cw.Device(1, "H200", 1 << 37, b"u" * 16),)
    assert info.limits == cw.Limits(0, 64, 0, 0, 0, 0, 0)
    assert info.dialects == ("verl",)
    assert info.features == ()


def test_threads_share_a_client(server: FakeServer, client: cw.Client) -> None:
    def echo(request: Request, context: Any) -> Response:
        data = sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data
        return Response(
            tensors=[tensor_pb2.Tensor(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=data)]
        )

    server.handler = echo
    wrong: list[int] = []

    def work(number: int) -> None:
        array = np.full(SHAPE, number, np.float32)
        for _ in range(10):
            if not np.array_equal(correct(client, old_log_probs=array).weights, array):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_messages_pass(server: FakeServer, client: cw.Client) -> None:
    # Larger than grpc's own default limit of 4 MiB in both directions.
    array = np.zeros((2, 1 << 20), np.float32)
    server.handler = lambda request, _: Response(
        tensors=[
            tensor_pb2.Tensor(
                role="TENSOR_ROLE_WEIGHTS",
                dtype="D_TYPE_F32",
                data=sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data,
            )
        ]
    )
    result = correct(
        client, rollout_log_probs=array, old_log_probs=array, response_mask=array.astype(bool)
    )
    assert result.weights.shape == array.shape


@pytest.mark.parametrize("size", [-4, 4])
@pytest.mark.parametrize("mask_dtype", ["bool", "int64"])
def test_an_answer_of_another_size_is_refused(
    server: FakeServer, client: cw.Client, mask_dtype: str, size: int
) -> None:
    count = int(np.prod(SHAPE))
    mask = tensor_pb2.Tensor(
        role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=b"\1" * (count + size)
    )
    server.handler = lambda *_: Response(tensors=[mask])
    with pytest.raises(cw.CounterweightError, match="bytes instead of"):
        correct(client, response_mask=np.ones(SHAPE, mask_dtype), outputs=["keep_mask"])


def test_closing_twice_is_fine(server: FakeServer) -> None:
    client = cw.Client(server.target)
    client.close()
    client.close()


def test_torch_is_not_imported() -> None:
    code = "import sys, counterweight_rl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
