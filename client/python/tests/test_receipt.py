"""Receipts: the formula, its laws, and that every way to compute it agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterweight_rl import Receipt, applied, applied_receipt, receipt

MODULUS = 1 << 64


def mix(x: int) -> int:
    """The contract's m(x), in Python's integers."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % MODULUS
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % MODULUS
    return x ^ (x >> 31)


def fingerprint_by_hand(weights: Any, mask: Any) -> int:
    total = 0
    for row, keeps in zip(weights, mask, strict=True):
        counted = [w for w, keep in zip(row, keeps, strict=True) if keep and w != 0]
        words = (
            mix(int(np.float32(w).view(np.uint32)) << 20 ^ k * 0x9E3779B97F4A7C15 % MODULUS)
            for k, w in enumerate(counted, 1)
        )
        if counted:
            total += mix((sum(words) + len(counted)) % MODULUS)
    return total % MODULUS


@pytest.fixture
def batch() -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    weights = np.exp(random.normal(0, 0.1, (32, 40))).astype(np.float32)
    weights[3, 5:9] = 0
    mask = np.arange(40) < random.integers(0, 40, 32)[:, None]
    mask[:, 5:7] = False
    mask[11] = False
    return weights, mask.astype(np.uint8)


def by_numpy(weights: Any, mask: Any, lengths: list[int]) -> Receipt:
    flat = None if weights is None else weights.reshape(-1)
    return applied_receipt._by_numpy(flat, mask.reshape(-1), lengths)


def test_a_known_answer() -> None:
    found = applied(np.array([[1, 2, 0.5]], np.float32), np.ones((1, 3), np.uint8))
    assert found == Receipt(0xB0CE7A2152B4026, 3, 2, 0, 0.5)


def test_the_formula(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    found = applied(weights, mask, response_mask=np.ones_like(mask))
    counted = (mask != 0) & (weights != 0)
    assert found.fingerprint == fingerprint_by_hand(weights, mask)
    assert found.tokens == counted.sum()
    assert found.changed_tokens == (weights[counted] != 1).sum()
    assert found.dropped_tokens == mask.size - counted.sum()
    assert found.weight_excess == pytest.approx(
        weights[counted].astype(np.float64).sum() - counted.sum(), rel=1e-12
    )


def test_numpy_alone_agrees_with_the_library(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    whole = applied(weights, mask)
    alone = by_numpy(weights, mask, [40] * 32)
    assert alone.weight_excess == pytest.approx(whole.weight_excess, rel=1e-12)
    assert alone == Receipt(**{**vars(whole), "weight_excess": alone.weight_excess})
    assert by_numpy(None, mask, [40] * 32) == applied(None, mask)
    # More rows than one of its passes takes.
    many = np.tile(weights, (80, 1)), np.tile(mask, (80, 1))
    assert by_numpy(*many, [40] * 2560).fingerprint == applied(*many).fingerprint


def test_order_padding_and_parts_change_nothing(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    whole = applied(weights, mask)
    order = np.random.default_rng(1).permutation(32)
    parts = Receipt()
    for rank in range(4):
        rows = order[rank::4]
        padded = [
            np.pad(array[rows], ((0, 0), (3, 7)), constant_values=fill)
            for array, fill in ((weights, 9), (mask, 0))
        ]
        parts += applied(*padded)
    assert parts.weight_excess == pytest.approx(whole.weight_excess, rel=1e-12)
    assert parts == Receipt(**{**vars(whole), "weight_excess": parts.weight_excess})


def test_packed_rows_are_those_of_a_padded_batch(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    lengths = np.random.default_rng(2).integers(0, 41, 32)
    inside = np.arange(40) < lengths[:, None]
    packed = applied(weights[inside], mask[inside], sequence_lengths=lengths)
    assert packed == applied(weights, mask * inside)


def test_a_kept_weight_is_one_that_was_multiplied_by_the_mask(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    assert applied(weights * mask, np.ones_like(mask)) == applied(weights, mask)


def test_every_alteration_shows(batch: tuple[Any, Any]) -> None:
    weights, mask = batch
    mark = applied(weights, mask).fingerprint
    random = np.random.default_rng(3)
    rows = np.flatnonzero((mask != 0).sum(1) > 8)
    for i in range(500):
        w, m = weights.copy(), mask.copy()
        row = random.choice(rows)
        token = random.choice(np.flatnonzero(m[row] * (w[row] != 0)))
        # Rows with equal masks that exchange all weights are rows in another order.
        other = random.choice([each for each in rows if (m[each] != m[row]).any()])
        match i % 6:
            case 0:
                w[row, token] = np.nextafter(w[row, token], np.float32(9))
            case 1:
                m[row, token] = 0
            case 2:
                w[row] = np.roll(w[row], 1)
            case 3:
                w[[row, other]] = w[[other, row]]
            case 4:
                w[:] = 1
            case 5:
                w = w.astype(np.float16).astype(np.float32)
        assert applied(w, m).fingerprint != mark


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.ones((2, 3)), np.ones((3, 2))), ValueError, "weights and mask must have the same"),
        ((None, np.ones(3)), ValueError, "mask must be [B, T], or [N] with sequence_lengths"),
        ((None, [[1]]), TypeError, "mask must be a numpy array or a torch tensor"),
        ((None, np.ma.ones((1, 2))), TypeError, "mask is a numpy masked array"),
        ((np.ma.ones((1, 2)), np.ones((1, 2))), TypeError, "weights is a numpy masked array"),
    ],
)
def test_what_is_no_batch_is_refused(arguments: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as refused:
        applied(*arguments)
    assert text in str(refused.value)


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="sequence_lengths must be >= 0 and add up"):
        applied(None, np.ones(3, np.uint8), sequence_lengths=[1, 1])


def test_torch_tensors_agree_on_host_and_device(batch: tuple[Any, Any]) -> None:
    torch = pytest.importorskip("torch")
    weights, mask = batch
    whole = applied(weights, mask)
    tensors = torch.tensor(weights), torch.tensor(mask)
    assert applied(*tensors) == whole
    # The code for tensors of any other device, on this one.
    assert applied_receipt._on_device(torch, *tensors, [40] * 32) == whole
    assert applied_receipt._on_device(torch, None, tensors[1], [40] * 32) == applied(None, mask)
    rounded = applied(tensors[0].bfloat16(), tensors[1])
    assert receipt.judge(whole, rounded) == "rounded"


def test_states() -> None:
    issued = Receipt(7, 100, 90, 20, 3.0)
    cases = {
        "used": Receipt(7, 100, 90, 0, 3.0),
        "unused": Receipt(8, 100, 0, 0, 0.0),
        "rounded": Receipt(8, 100, 88, 0, 3.01),
        "replaced": Receipt(8, 100, 90, 0, 3.0),
    }
    for state, used in cases.items():
        assert receipt.judge(issued, used) == state
    assert receipt.judge(Receipt(7, 100), Receipt(8, 120)) == "unused"
    assert receipt.judge(issued, Receipt(7, 99, 90, 0, 3.0)) == "replaced"
    assert receipt.judge(None, issued) is None
    assert receipt.judge(issued, None) is None
