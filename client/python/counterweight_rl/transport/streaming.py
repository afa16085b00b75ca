"""The protocol of ``CorrectStream``: the messages up in order, the checks of those down.

No function here waits: ``Upload`` makes messages, ``Download`` takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.arrays import framing, wire
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.contract.tensors import TensorRole
from counterweight_rl.correction import Answer, Correction
from counterweight_rl.result import Result
from counterweight_rl.transport import frames


class Upload:
    """The chunks of one batch.

    The response mask goes first and whole, because losses divide by counts of it. The other tensors
    follow in blocks of the same positions, so that the server can compute the complete rows while
    later ones arrive.
    """

    def __init__(self, tensors: Sequence[wire.WireTensor], chunk_bytes: int) -> None:
        """Makes chunks of at most ``chunk_bytes``; all tensors have one element per position."""
        self._tensors = tensors
        self._chunk_bytes = chunk_bytes

    def messages(self) -> Iterator[tuple[bytes, int]]:
        """Yields each chunk's message, and the tensor bytes sent up to its end."""
        sent = 0
        for tensor, begin, end in self._chunks():
            sent += end - begin
            yield frames.chunk(tensor, begin, self._tensors[tensor].data[begin:end]), sent

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        sizes = [tensor.data.nbytes for tensor in self._tensors]
        mask = [t.role for t in self._tensors].index(TensorRole.RESPONSE_MASK)
        num_positions = sizes[mask]
        if num_positions == 0:
            return
        yield from self._split(mask, 0, num_positions)
        others = [(i, size // num_positions) for i, size in enumerate(sizes) if i != mask]
        step = max(1, self._chunk_bytes // max((width for _, width in others), default=1))
        for first in range(0, num_positions, step):
            last = min(first + step, num_positions)
            for tensor, width in others:
                yield from self._split(tensor, first * width, last * width)

    def _split(self, tensor: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        for offset in range(begin, end, self._chunk_bytes):
            yield tensor, offset, min(offset + self._chunk_bytes, end)


class Download(Generic[ArrayT]):
    """An arriving answer; each chunk's bytes are written to their final place."""

    def __init__(self, correction: Correction[ArrayT]) -> None:
        self._correction: Correction[Any] = correction
        self._answer: Answer[ArrayT] | None = None
        self._buffers: list[memoryview] = []
        self._received: list[int] = []
        self._summary: pb.StreamSummary | None = None
        self.admitted = False
        """Whether the server has reserved memory, so that chunks may follow."""

    def take(self, message: bytes) -> None:
        """Takes the next message.

        Raises:
            InvalidRequestError: The method lacks the output of a destination.
            ValueError: The message must not arrive now, or is none.
        """
        kind, payload = frames.read(message)
        if self._summary is not None:
            raise ValueError("something came after the stream's summary")
        if kind == frames.ADMISSION:
            if self.admitted:
                raise ValueError("a second admission came")
            self.admitted = True
        elif kind == frames.RESULT:
            self._begin(payload)
        elif kind == frames.CHUNK:
            self._take_chunk(frames.read_chunk(payload))
        elif kind == frames.SUMMARY:
            self._end(payload)

    def result(self) -> Result[Any]:
        """Returns the Result of a stream that ended with status OK.

        Raises:
            ValueError: Something is missing.
        """
        if self._answer is None or self._summary is None:
            raise ValueError("the stream ended before its summary came")
        for output in self._answer.outputs:
            output.finish()
        return self._answer.result(framing.to_json(self._summary.timing))

    def _begin(self, payload: memoryview) -> None:
        if not self.admitted or self._answer is not None:
            raise ValueError("a result came before the admission, or a second one")
        response, tensors = framing.decode_answer(payload)
        self._answer = Answer(self._correction, response, tensors)
        if any(tensor.data.nbytes for tensor in tensors):
            raise ValueError("a tensor of the stream's result has data outside of chunks")
        self._buffers = [output.buffer() for output in self._answer.outputs]
        self._received = [0] * len(self._buffers)

    def _take_chunk(self, chunk: frames.Chunk) -> None:
        if chunk.tensor >= len(self._buffers):
            raise ValueError(f"a chunk came for tensor {chunk.tensor}, which is not in the result")
        buffer, received = self._buffers[chunk.tensor], self._received[chunk.tensor]
        end = received + chunk.data.nbytes
        if chunk.offset != received:
            raise ValueError(
                f"a chunk of tensor {chunk.tensor} begins at {chunk.offset} instead of {received}"
            )
        if end > buffer.nbytes:
            raise ValueError(f"tensor {chunk.tensor} has more than its {buffer.nbytes} bytes")
        buffer[received:end] = chunk.data
        self._received[chunk.tensor] = end

    def _end(self, payload: memoryview) -> None:
        if self._answer is None:
            raise ValueError("a summary came before the result")
        for tensor, (buffer, received) in enumerate(
            zip(self._buffers, self._received, strict=True)
        ):
            if received != buffer.nbytes:
                raise ValueError(f"tensor {tensor} has {received} of its {buffer.nbytes} bytes")
        self._summary = framing.decode(pb.StreamSummary, bytes(payload))
