"""The generated code reads and writes the same bytes as the client's own framing."""

from __future__ import annotations

import pytest

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays import framing, wire
from counterweight_rl.contract.wire_format import prefix, split

# Lengths around the edges of one-, two- and three-byte varints.
LENGTHS = [0, 1, 115, 127, 128, 16_383, 16_384, 100_000]


@pytest.mark.parametrize("length", LENGTHS)
def test_encoded_request_parses(length: int) -> None:
    data = bytes(i % 251 for i in range(length))
    head = service_pb2.CorrectRequest(request_id="a", group_ids=[1, -2])
    framed = framing.encode_request(
        head,
        [
            wire.WireTensor(
                tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS, tensor_pb2.D_TYPE_F32, memoryview(data)
            ),
            wire.WireTensor(
                tensor_pb2.TENSOR_ROLE_RESPONSE_MASK, tensor_pb2.D_TYPE_U8, memoryview(b"\x01")
            ),
        ],
    )
    expected = service_pb2.CorrectRequest()
    expected.CopyFrom(head)
    expected.tensors.add(role="TENSOR_ROLE_OLD_LOG_PROBS", dtype="D_TYPE_F32", data=data)
    expected.tensors.add(role="TENSOR_ROLE_RESPONSE_MASK", dtype="D_TYPE_U8", data=b"\x01")
    assert service_pb2.CorrectRequest.FromString(framed) == expected


@pytest.mark.parametrize("length", LENGTHS)
def test_response_decodes(length: int) -> None:
    data = bytes(i % 251 for i in range(length))
    response = service_pb2.CorrectResponse(request_id="a", loss=1.5, metrics={"x": 2.0})
    response.tensors.add(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=data)
    response.tensors.add(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=b"\x01")
    rest, tensors = framing.decode_answer(response.SerializeToString())
    assert [(t.role, t.dtype, bytes(t.data)) for t in tensors] == [
        (tensor_pb2.TENSOR_ROLE_WEIGHTS, tensor_pb2.D_TYPE_F32, data),
        (tensor_pb2.TENSOR_ROLE_KEEP_MASK, tensor_pb2.D_TYPE_U8, b"\x01"),
    ]
    assert rest == {"requestId": "a", "loss": 1.5, "metrics": {"x": 2.0}}


def test_the_last_of_two_data_fields_counts() -> None:
    """protobuf's rule for every field that is not repeated."""
    body = b"".join(prefix(tensor_pb2.Tensor.DATA_FIELD_NUMBER, 2) + d for d in (b"ab", b"cd"))
    framed = prefix(service_pb2.CorrectResponse.TENSORS_FIELD_NUMBER, len(body)) + body
    assert service_pb2.CorrectResponse.FromString(framed).tensors[0].data == b"cd"
    _, (tensor,) = framing.decode_answer(framed)
    assert bytes(tensor.data) == b"cd"


def test_split_skips_every_wire_type() -> None:
    # Fields 1 (varint), 2 (fixed64), 3 (fixed32), 4 (bytes), then 5 (bytes) twice.
    others = b"\x08\x96\x01" + b"\x11" + b"\0" * 8 + b"\x1d" + b"\0" * 4 + b"\x22\x01a"
    rest, payloads = split(memoryview(others + b"\x2a\x02hi" + b"\x2a\x00"), 5)
    assert rest == others
    assert [bytes(p) for p in payloads] == [b"hi", b""]


@pytest.mark.parametrize(
    "data", [b"\x2a", b"\x2a\x05hi", b"\x08", b"\x11\0", b"\x0b", b"\xff" * 11]
)
def test_broken_messages_are_value_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf"):
        split(memoryview(data), 5)
