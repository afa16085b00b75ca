"""Calls of one message up and one down."""

from __future__ import annotations

from typing import Any, TypeVar

from counterweight_rl import calls, partial_sums
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import group_baseline_pb2 as groups
from counterweight_rl.arrays import framing
from counterweight_rl.correction import Answer, Correction, reading
from counterweight_rl.result import Result
from counterweight_rl.transport.template import PreparedCorrection

T = TypeVar("T")

_ANSWERS: dict[str, Any] = {
    "ListMethods": pb.ListMethodsResponse,
    "GetServerInfo": pb.GetServerInfoResponse,
    "MergeSums": pb.MergeSumsResponse,
    "Diagnose": pb.DiagnoseResponse,
    "ReportStep": pb.ReportStepResponse,
    "DeclareRun": pb.DeclareRunResponse,
    "GroupAdvantages": groups.GroupAdvantagesResponse,
}
_REQUESTS: dict[str, Any] = {
    "MergeSums": pb.MergeSumsRequest,
    "ReportStep": pb.ReportStepRequest,
    "DeclareRun": pb.DeclareRunRequest,
    "GroupAdvantages": groups.GroupAdvantagesRequest,
}


def read(call: calls.Call[T], message: bytes) -> T:
    """Returns what a call without a batch answers.

    Raises:
        CounterweightError: The answer is unreadable.
    """
    assert call.read is not None
    with reading(call.request_id):
        return call.read(framing.to_json(framing.decode(_ANSWERS[call.rpc], message)))


def request(call: calls.Call[Any]) -> bytes:
    """Returns the request of a call without a batch."""
    if call.examined is not None:
        # The fields of a DiagnoseRequest have the numbers of a CorrectRequest's.
        head = framing.to_request(call.message)
        return framing.encode_request(head, call.examined.tensors)
    if call.rpc not in _REQUESTS:
        return b""
    message = call.message
    if call.rpc == "MergeSums":
        message = {**message, "parts": [partial_sums.to_message(part) for part in call.parts]}
    encoded: bytes = framing.to_message(message, _REQUESTS[call.rpc]).SerializeToString()
    return encoded


def encode(correction: Correction[Any]) -> bytes:
    """Returns the request; copies the tensors."""
    if isinstance(correction, PreparedCorrection):
        return correction.message()
    return framing.encode_request(framing.to_request(correction.head), correction.batch.tensors)


def decode(correction: Correction[Any], message: bytes) -> Result[Any]:
    """Returns the Result of an answer.

    Raises:
        CounterweightError: The answer is unreadable.
    """
    if isinstance(correction, PreparedCorrection):
        result = correction.read(message)
        if result is not None:
            return result
    with reading(correction.head["request_id"]):
        response, tensors = framing.decode_answer(message)
        answer = Answer(correction, response, tensors)
        for output, tensor in zip(answer.outputs, tensors, strict=True):
            output.fill(tensor.data)
        return answer.result()
