"""torch's tensors on the fake CUDA runtime: CPU tensors whose memory is the fake device's.

``counterweight_rl.arrays.cuda`` takes them for CUDA's. torch itself cannot read that memory, and
runs nothing in streams.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from counterweight_rl.arrays import cuda
from device_arrays import Device
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_PAGE = 4096
_READ_AND_WRITE = 3
_OTHER_STREAM = 1  # of threads that were given none: the legacy default stream


class Tensors:
    """Tensors on the fake device, and torch's current stream.

    Attributes:
        device: The runtime.
        stream: The current stream of the test's thread.
        synchronized: How often the package waited for a stream.
    """

    def __init__(self, device: Device, patch: pytest.MonkeyPatch) -> None:
        """``counterweight_rl.arrays.cuda`` takes tensors in the device's memory for CUDA's."""
        self.device = device
        self.stream = device.stream()
        self.synchronized = 0
        self._thread = threading.get_ident()
        self._chosen = threading.local()
        self._computing = False
        # A failure shows its arguments, and their memory is not the host's.
        patch.setattr("torch.Tensor.__repr__", lambda tensor: f"tensor at {tensor.data_ptr():#x}")
        patch.setattr("torch.Tensor.clone", lambda tensor: self._clone(tensor))
        patch.setattr(cuda, "device_of", self._device_of)
        patch.setattr(cuda, "is_on_device", self._is_on_device)
        patch.setattr(cuda, "current_stream", lambda tensor: self._current())
        patch.setattr(cuda, "on_stream", self._on_stream)
        patch.setattr(cuda, "empty", self._empty)

    def send(self, tensor: Any, index: int = 0) -> Any:
        """A copy on the device, complete when the current stream reaches it; also of an array."""
        tensor = torch.as_tensor(tensor).detach()
        array = tensor.contiguous().view(-1).view(torch.uint8).numpy()
        if not array.size:
            return _tensor(0, tensor.shape, tensor.dtype)
        sent = self.device.send(array, self.stream, index)
        return _tensor(sent.address, tensor.shape, tensor.dtype)

    def send_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with its arrays on the device; lengths stay on the host."""
        return {
            name: self.send(value) if hasattr(value, "shape") and "lengths" not in name else value
            for name, value in batch.items()
        }

    def receive(self, tensor: Any) -> Any:
        """A CPU tensor with the numbers when the current stream is synchronized."""
        if tensor is None or not tensor.numel():
            return tensor
        size = tensor.numel() * tensor.element_size()
        copied = self.device.receive_bytes(tensor.data_ptr(), (size,), np.uint8, self.stream)
        return torch.from_numpy(copied).view(tensor.dtype).view(tensor.shape)

    @contextmanager
    def torch_computes(self) -> Iterator[None]:
        """torch's own operations compute in the device's memory, at once (seed 0)."""
        self.device.set_seed(0)
        self._computing = True
        try:
            with _Computing(self):
                yield
        finally:
            self._computing = False

    def index_of(self, tensor: Any) -> int | None:
        """The device of a tensor; one without elements is taken for device 0's."""
        return self.device.index_of(tensor.data_ptr()) if tensor.numel() else 0

    def _device_of(self, tensor: Any) -> Any:
        index = self.index_of(tensor)
        return torch.device("cpu") if index is None else torch.device("cuda", index)

    def _is_on_device(self, array: Any) -> bool:
        return isinstance(array, torch.Tensor) and self.index_of(array) is not None

    def _current(self) -> Any:
        own = threading.get_ident() == self._thread
        stream = getattr(self._chosen, "stream", self.stream if own else _OTHER_STREAM)

        def synchronize() -> None:
            self.synchronized += 1
            self.device.synchronize(stream)

        return SimpleNamespace(cuda_stream=stream, synchronize=synchronize)

    @contextmanager
    def _on_stream(self, chosen: Any) -> Iterator[None]:
        before = dict(vars(self._chosen))
        self._chosen.stream = chosen.cuda_stream
        try:
            yield
        finally:
            vars(self._chosen).clear()
            vars(self._chosen).update(before)

    def _empty(self, shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
        assert self._is_on_device(like)
        stream = self._current().cuda_stream
        assert stream != _OTHER_STREAM, "memory for a stream that is not the caller's"
        size = int(np.prod(shape)) * dtype.itemsize
        if not size:
            return _tensor(0, shape, dtype)
        made = self.device.empty((size,), np.uint8, stream)
        if self._computing:
            # The runtime does not see what torch writes.
            self.device.fill(made.address, size, stream)
        return _tensor(made.address, shape, dtype)

    def _clone(self, tensor: Any) -> Any:
        if not self._is_on_device(tensor):
            return torch.empty_like(tensor).copy_(tensor)
        made = self._empty(tuple(tensor.shape), tensor.dtype, tensor)
        if tensor.numel():
            size = tensor.numel() * tensor.element_size()
            stream = self._current().cuda_stream
            self.device.copy(made.data_ptr(), tensor.data_ptr(), size, stream)
        return made


def _tensor(address: int, shape: Any, dtype: Any) -> Any:
    """A tensor in that memory, without torch touching it."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = (ctypes.c_char * size).from_address(address)
    flat: Any = torch.frombuffer(memory, dtype=torch.uint8)
    return flat.view(dtype).view(tuple(shape))


class _Computing(TorchDispatchMode):
    """Lets torch read and write the device's memory, and puts what it makes of it there too."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self._tensors = tensors
        self._protect = ctypes.CDLL(None).mprotect

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor) and a.numel()]
        there = [t for t in given if self._tensors.index_of(t) is not None]
        for tensor in there:
            memory = tensor.untyped_storage()
            begin = memory.data_ptr() // _PAGE * _PAGE
            size = ctypes.c_size_t(memory.data_ptr() + memory.nbytes() - begin)
            self._protect(ctypes.c_void_p(begin), size, _READ_AND_WRITE)
        result = function(*args, **(kwargs or {}))
        return tree_map(self._moved, result) if there else result

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or self._tensors.index_of(value) is not None:
            return value
        return self._tensors.send(value)
