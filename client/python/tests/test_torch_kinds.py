"""torch tensors of every kind: read as what they hold, or refused by the argument's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl import calls  # noqa: E402
from counterweight_rl.arrays.interop import adopt  # noqa: E402

X = torch.arange(12, dtype=torch.float32).reshape(3, 4)
ARGUMENTS = ("rollout_log_probs", "old_log_probs", "current_log_probs", "ref_log_probs")
ARGUMENTS += ("advantages", "policy_versions", "response_mask", "out['weights']")


def sparse_csr() -> Any:
    return X.to_sparse_csr()


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(X)


def masked() -> Any:
    from torch.masked import masked_tensor

    return masked_tensor(X, X > 3)


def traced() -> Any:
    seen = []
    torch.func.vmap(lambda row: seen.append(row) or row)(torch.stack([X, X]))
    return seen[0]


def differentiated() -> Any:
    seen = []
    torch.func.grad(lambda x: seen.append(x) or x.sum())(X)
    return seen[0]


def quantized() -> Any:
    return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


def mkldnn() -> Any:
    return X.to_mkldnn()


def without_storage() -> Any:
    parameter = X.clone()
    parameter.untyped_storage().resize_(0)
    return parameter


def lazy() -> Any:
    return torch.nn.parameter.UninitializedParameter()


def wrapper() -> Any:
    """A subclass with the elements of another tensor."""

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, X.shape, dtype=X.dtype)

        @classmethod
        def __torch_dispatch__(cls, *arguments: Any) -> Any:
            raise NotImplementedError

    return Wrapper()


UNREADABLE: dict[str, Any] = {
    "sparse": X.to_sparse,
    "sparse_csr": sparse_csr,
    "meta": lambda: X.to("meta"),
    "fake": fake,
    "masked": masked,
    "vmap": traced,
    "grad": differentiated,
    "quantized": quantized,
    "mkldnn": mkldnn,
    "without_storage": without_storage,
    "lazy": lazy,
    "wrapper": wrapper,
}


def arguments(**changed: Any) -> dict[str, Any]:
    return {
        "rollout_log_probs": X,
        "old_log_probs": X,
        "response_mask": torch.ones(3, 4),
        "method": "token_tis",
        **changed,
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", UNREADABLE)
def test_tensors_without_elements_of_their_own(kind: str) -> None:
    for name in ARGUMENTS:
        tensor = UNREADABLE[kind]()
        changed = {"out": {"weights": tensor}} if name.startswith("out") else {name: tensor}
        with pytest.raises((TypeError, ValueError)) as caught:
            calls.correct(**arguments(**changed))
        assert name in str(caught.value), (name, caught.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sequence_lengths", "group_ids", "version_spans"])
@pytest.mark.parametrize("kind", ["meta", "sparse", "fake", "vmap"])
def test_lists_of_integers_in_tensors_without_data(kind: str, name: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        calls.correct(**arguments(**{name: UNREADABLE[kind]()}))
    assert name in str(caught.value)


@pytest.fixture
def mesh() -> Iterator[Any]:
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_of_a_dtensor_both_ways_out_are_told(mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    for tensor in (
        distribute_tensor(X, mesh, [Shard(0)]),
        torch.nn.Parameter(distribute_tensor(X, mesh, [Shard(0)])),
    ):
        with pytest.raises(TypeError, match=r"x is a DTensor; pass x\.full_tensor\(\), or x\.to_l"):
            adopt("x", tensor)


def views(make: Any) -> dict[str, Any]:
    """Returns views of one element, or of none, with strides that mean nothing."""
    base = make(torch.arange(1.0, 25).reshape(2, 3, 4))
    return {
        "last": base[:1, :1, 1],
        "stacked": torch.stack([base[:1, 0, :1], base[:1, 1, :1]], -1)[..., 0],
        "stepped": base[:1, ::3, 2],
        "transposed": base.permute(2, 1, 0)[1:2, :1, 0],
        "expanded": base[0, 0, :1].expand(1, 1),
        "empty": base[:0, :, 1],
        "empty_columns": base[:, :0, 1],
        "one_column": base[:, :1, 3],
        "parameter": torch.nn.Parameter(base[:1, :1, 1].float()),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", views(lambda base: base))
def test_views_are_read_as_their_copies(kind: str, dtype: torch.dtype) -> None:
    view = views(lambda base: base.to(dtype))[kind]
    copy = torch.tensor(view.tolist(), dtype=view.dtype).reshape(view.shape)
    mask = torch.ones(view.shape, dtype=torch.bool)
    sent = [
        calls.correct(
            rollout_log_probs=each,
            old_log_probs=each,
            advantages=each,
            response_mask=mask,
            method="ppo_clip",
        )
        for each in (view, copy)
    ]
    tensors = [[bytes(t.data) for t in call.correction.batch.tensors] for call in sent]
    assert tensors[0] == tensors[1]
    assert len(tensors[0][0]) == view.numel() * min(view.element_size(), 4)


@pytest.mark.parametrize("kind", ["last", "stacked", "stepped", "transposed", "empty"])
def test_views_receive_outputs(kind: str) -> None:
    from counterweight_rl.arrays.output_array import OutputArray
    from counterweight_rl.arrays.pinned import Transfers

    for name, dtype, one in (
        ("weights", torch.float32, np.float32(0.5)),
        ("keep_mask", torch.uint8, np.uint8(1)),
        ("keep_mask", torch.bool, np.uint8(1)),
    ):
        array = views(lambda base, to=dtype: base.to(to))[kind]
        mask = torch.ones(array.shape, dtype=dtype if name == "keep_mask" else torch.bool)
        x = torch.zeros(array.shape)
        call = calls.correct(
            rollout_log_probs=x,
            old_log_probs=x,
            response_mask=mask,
            method="token_tis",
            out={name: array},
        )
        output = OutputArray(name, call.correction.batch, array, Transfers())
        assert output.memory is not None, "it is written in place"
        output.fill(memoryview(np.full(array.numel(), one).tobytes()))
        assert array.tolist() == torch.full(array.shape, float(one)).to(dtype).tolist()


def test_negated_views_are_read_as_what_they_show() -> None:
    negated = torch.complex(torch.zeros(3, 4), X).conj().imag
    assert negated.is_neg()
    assert torch.equal(adopt("x", negated), -X)
    call = calls.correct(**arguments(old_log_probs=negated))
    sent = np.frombuffer(call.correction.batch.tensors[1].data, "<f4").reshape(3, 4)
    np.testing.assert_array_equal(sent, -X.numpy())
