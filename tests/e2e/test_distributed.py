"""A step has the numbers of one batch, however many micro-batches and ranks it is cut into."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl.distributed import ContextRows, Step
from counterweight_rl.status import StatusCode

HERE = pathlib.Path(__file__).parent
WORLDS = (1, 2, 3, 4, 7)
METHOD = "geo_rs_token_tis_ppo_clip"


@pytest.fixture(scope="module")
def local() -> Iterator[cw.Client]:
    with cw.Client("local:") as client:
        yield client


def micro_batches(count: int, seed: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    batch = padded_batch(40, 200, seed=seed)
    rows = np.array_split(np.random.default_rng(seed).permutation(40), count)
    return batch, [{name: array[part] for name, array in batch.items()} for part in rows]


def run(step: Step, parts: list[dict[str, Any]]) -> tuple[list[cw.Result[Any]], cw.StepTotals]:
    for part in parts:
        step.add(**part)
    step.reduce()
    results = [step.finish(**part) for part in parts]
    return results, step.close()


def test_a_step_of_micro_batches_is_one_batch(local: cw.Client) -> None:
    batch, parts = micro_batches(7)
    whole = local.correct(**batch, method=METHOD)
    results, totals = run(Step(local, METHOD, loss_metrics=True), parts)
    assert totals.loss == whole.loss
    assert sum(r.loss or 0.0 for r in results) == pytest.approx(whole.loss, rel=1e-12)
    # A batch with global counts has 1.
    expected = {n: v for n, v in whole.metrics.items() if n != "loss/count"}
    np.testing.assert_equal({n: totals.metrics[n] for n in expected}, expected)
    assert totals.rules == whole.rules


def test_a_method_without_a_loss_needs_no_second_pass(local: cw.Client) -> None:
    batch, parts = micro_batches(5)
    step = Step(local, "token_tis")
    for part in parts:
        result = step.add(**part)
        assert result.weights is not None
    totals = step.reduce()
    assert step.counts is None
    np.testing.assert_equal(totals.metrics, local.correct(**batch, method="token_tis").metrics)
    assert step.close() == totals


def test_wrong_use_is_refused(local: cw.Client) -> None:
    _, parts = micro_batches(3)
    step = Step(local, METHOD)
    with pytest.raises(ValueError, match="call reduce"):
        step.finish(**parts[0])
    with pytest.raises(ValueError, match="no rank has added"):
        step.reduce()
    for part in parts:
        step.add(**part)
    with pytest.raises(TypeError, match="method is an argument of the step"):
        step.add(**parts[0], method="token_tis")
    with pytest.raises(TypeError, match=r"respons_mask.*did you mean"):
        step.add(**parts[0], respons_mask=None)
    step.reduce()
    with pytest.raises(ValueError, match="before reduce"):
        step.add(**parts[0])
    with pytest.raises(ValueError, match="reduced before"):
        step.reduce()
    changed = {**parts[0], "old_log_probs": parts[0]["old_log_probs"] - 1e-6}
    with pytest.raises(ValueError, match="were not added"):
        step.finish(**changed)
    step.finish(**parts[0])
    with pytest.raises(ValueError, match="or were finished before"):
        step.finish(**parts[0])
    for part in parts[1:]:
        step.finish(**part)
    step.close()
    with pytest.raises(ValueError, match="closed before"):
        step.close()


def test_the_calls_of_a_step_have_the_same_tensors(local: cw.Client) -> None:
    _, parts = micro_batches(2)
    step = Step(local, "token_tis", policy_version=1)
    step.add(**parts[0])
    versions = np.zeros(parts[1]["response_mask"].shape, np.int32)
    with pytest.raises(ValueError, match="same tensors and options"):
        step.add(**parts[1], policy_versions=versions)


def test_a_mean_over_groups_is_refused(local: cw.Client) -> None:
    _, parts = micro_batches(2)
    method = cw.Dialect("skyrl", {"loss_reduction": "prompt_mean", "policy_loss_type": "regular"})
    step = Step(local, method)
    for part in parts:
        step.add(**part, group_ids=[0] * 20)
    step.reduce()
    with pytest.raises(ValueError, match="mean over groups"):
        step.finish(**parts[0], group_ids=[0] * 20)


def test_many_vectors_are_merged_on_the_way(
    local: cw.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, parts = micro_batches(20)
    monkeypatch.setattr("counterweight_rl.distributed.step.MOST_VECTORS", 8)
    _, totals = run(Step(local, METHOD), parts)
    assert totals.loss == local.correct(**batch, method=METHOD).loss


class FakeMpi:
    """The methods of an mpi4py communicator that a step uses, over threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._barrier = threading.Barrier(size, timeout=60)
        self._lock = threading.Lock()
        self._vectors: list[np.ndarray] = []

    def Get_rank(self) -> int:
        return int(threading.current_thread().name.rpartition("_")[2])

    def Get_size(self) -> int:
        return self._size

    def Allreduce(self, place: object, vector: np.ndarray, op: Callable[..., Any]) -> None:
        assert place is IN_PLACE
        with self._lock:
            self._vectors.append(vector.copy())
        self._barrier.wait()
        vector[:] = op(np.stack(self._vectors), axis=0)
        if self._barrier.wait() == 0:
            self._vectors.clear()
        self._barrier.wait()


IN_PLACE, SUM, MAX = object(), np.sum, np.max


@pytest.mark.parametrize("average", [False, True])
def test_mpi_communicators_reduce_too(local: cw.Client, average: bool) -> None:
    batch, parts = micro_batches(6)
    whole = local.correct(**batch, method=METHOD)
    group = FakeMpi(3)
    with futures.ThreadPoolExecutor(3) as ranks:
        answers = list(
            ranks.map(
                lambda me: run(Step(local, METHOD, group=group, average=average), parts[me::3]),
                range(3),
            )
        )
    for results, totals in answers:
        assert totals.loss == pytest.approx(whole.loss, rel=0 if not average else 1e-15)
        assert totals.rules == whole.rules
        assert results[0].gradient is not None
    factor = 3 if average else 1
    losses = sum(r.loss or 0.0 for results, _ in answers for r in results)
    assert losses == pytest.approx(factor * (whole.loss or 0.0), rel=1e-12)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("denominator", ["original", "kept"])
@pytest.mark.parametrize(
    "aggregation",
    [
        "token_mean",
        "token_sum",
        "seq_mean_token_sum",
        "seq_mean_token_mean",
        "seq_mean_token_sum_norm",
    ],
)
def test_every_reduction_is_that_of_one_batch(
    local: cw.Client, aggregation: str, denominator: str, ranks: int
) -> None:
    """Two ranks whose trainer averages: their losses add up to twice the batch's."""
    loss = cw.PolicyLoss(
        surrogate="ppo_clip",
        aggregation=aggregation,
        denominator=denominator,
        ratio_source="current_old",
        clip_low=0.2,
        clip_high=0.2,
        norm_length=100 if aggregation.endswith("norm") else None,
    )
    method = cw.Preset("geo_rs_token_tis", policy_loss=loss)
    batch, parts = micro_batches(4)
    whole = local.correct(**batch, method=method)
    group = FakeMpi(ranks)
    with futures.ThreadPoolExecutor(ranks) as threads:
        answers = list(
            threads.map(
                lambda me: run(Step(local, method, group=group, average=True), parts[me::ranks]),
                range(ranks),
            )
        )
    losses = sum(result.loss or 0.0 for results, _ in answers for result in results)
    assert losses == pytest.approx(ranks * (whole.loss or 0.0), rel=1e-12)
    for _, totals in answers:
        assert totals.loss == pytest.approx(whole.loss, rel=1e-15)


def test_a_step_of_which_a_part_is_missing_has_no_loss(local: cw.Client) -> None:
    _, parts = micro_batches(4)
    group = FakeMpi(2)

    def rank(me: int) -> str:
        step = Step(local, METHOD, group=group)
        for part in parts[me::2]:
            step.add(**part)
        step.reduce()
        for part in parts[me::2][me:]:
            step.finish(**part)
        with pytest.raises(ValueError, match="3 of the step's 4 micro-batches") as caught:
            step.close()
        return str(caught.value)

    with futures.ThreadPoolExecutor(2) as ranks:
        assert len(set(ranks.map(rank, range(2)))) == 1


def test_ranks_with_other_methods_fail_by_name(local: cw.Client) -> None:
    _, parts = micro_batches(2)
    group = FakeMpi(2)

    def rank(me: int) -> str:
        step = Step(local, ("token_tis", cw.Preset("token_tis", upper=3.0))[me], group=group)
        step.add(**parts[me])
        with pytest.raises(cw.InvalidRequestError) as caught:
            step.reduce()
        return str(caught.value)

    with futures.ThreadPoolExecutor(2) as ranks:
        assert all("are not of one method" in text for text in ranks.map(rank, range(2)))


def test_a_group_is_one(local: cw.Client) -> None:
    with pytest.raises(TypeError, match="group must be a process group"):
        Step(local, METHOD, group="world")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    pytest.importorskip("torch")
    file = tmp_path_factory.mktemp("steps") / "answers"
    script = HERE / "distributed_steps.py"
    subprocess.run([sys.executable, script, file, *map(str, WORLDS)], check=True, timeout=600)
    made: dict[int, list[dict[str, Any]]] = pickle.loads(file.read_bytes())
    return made


@pytest.mark.parametrize("method", ["normalized", "preset", "rows", "verl"])
def test_any_number_of_ranks_gives_the_same_bytes(
    answers: dict[int, list[dict[str, Any]]], method: str
) -> None:
    (alone,) = answers[1]
    for world in WORLDS:
        ranks = [each[method] for each in answers[world]]
        for name in ("weights", "keep_mask", "gradient"):
            # Rows are disjoint, others 0.
            together = np.sum([rank[name] for rank in ranks], axis=0)
            assert together.tobytes() == alone[method][name].tobytes(), (world, name)
        for rank in ranks:
            np.testing.assert_equal(rank["totals"], alone[method]["totals"])
            np.testing.assert_equal(rank["closed"], alone[method]["closed"])


def test_a_step_over_ranks_is_one_call(
    answers: dict[int, list[dict[str, Any]]], local: cw.Client
) -> None:
    torch = pytest.importorskip("torch")
    from distributed_steps import METHODS, batch

    for name in ("preset", "normalized", "turns"):
        whole = local.correct(**batch(), method=METHODS[name])
        (alone,) = (rank[name] for rank in answers[1])
        assert alone["closed"][2] == whole.loss
        for output in ("weights", "gradient"):
            assert torch.equal(torch.from_numpy(alone[output]), getattr(whole, output)), output


LATE = """
import datetime, sys, torch.distributed as dist
import counterweight_rl as cw
from batches import padded_batch
from counterweight_rl.distributed import Step
rank = int(sys.argv[1])
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[2]}", world_size=2, rank=rank,
    timeout=datetime.timedelta(seconds=5),
)
dist.barrier()
if rank == 1:
    sys.stdin.read()  # stays, and never reduces
    sys.exit()
step = Step(cw.Client("local:"), "token_tis", group=dist.group.WORLD)
step.add(**padded_batch())
try:
    step.reduce()
except cw.CounterweightError as error:
    print(error.code.name, error)
"""


def test_a_rank_that_never_comes_is_a_sentence(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    store = tmp_path / "store"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LATE, str(rank), store],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        assert ranks[0].stdout is not None
        said = ranks[0].stdout.read()
    finally:
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.close()
            rank.wait(60)
    assert said.startswith(StatusCode.DEADLINE_EXCEEDED.name)
    assert "every rank has to call reduce() and close() within the group's timeout" in said


CONTEXT = """
import sys, torch, torch.distributed as dist
from counterweight_rl.distributed import ContextRows
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", world_size=world, rank=rank)
rows, width = 5, 12 * world
whole = torch.arange(rows * width, dtype=torch.float32).view(rows, width)
lengths = [3, 9, 1, 7, 5]
for layout in ("contiguous", "zigzag"):
    pieces = whole.view(rows, 2 * world, -1)
    if layout == "contiguous":
        shard = whole.view(rows, world, -1)[:, rank]
    else:
        shard = torch.cat([pieces[:, rank], pieces[:, 2 * world - 1 - rank]], dim=1)
    owners = ContextRows(dist.group.WORLD, layout, rows, lengths)
    longest_first = [1, 3, 4, 0, 2]
    assert owners.owned == longest_first[rank::world], owners.owned
    found = owners.gather({"log_probs": shard, "advantages": torch.arange(5.0)})
    assert torch.equal(found["log_probs"], whole[owners.owned])
    assert found["advantages"].tolist() == owners.owned
    back = owners.scatter(2 * found["log_probs"])
    assert torch.equal(back, 2 * shard), layout
print("right")
"""


@pytest.mark.parametrize("world", [1, 2, 3])
def test_rows_of_context_parallel_shards_go_to_owners_and_back(
    world: int, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("torch")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", CONTEXT, str(rank), str(world), tmp_path / "store"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    assert [rank.communicate(timeout=300)[0] for rank in ranks] == ["right\n"] * world


def test_context_rows_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="layout must be one of contiguous, zigzag"):
        ContextRows(None, "ring", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lengths has 2 numbers for 3 rows"):
        ContextRows(None, "zigzag", 3, [1, 2])


def test_advantages_of_groups_over_ranks(local: cw.Client) -> None:
    random = np.random.default_rng(3)
    rewards = np.exp2(random.integers(-20, 20, 40)).astype(np.float32)
    ids = random.integers(-3, 3, 40) * (1 << 40) + 5
    kept = random.integers(0, 3, 40)
    baseline = cw.GroupBaseline(estimator="grpo", epsilon=1e-6, whitening="sample")
    whole = local.group_advantages(rewards, ids, baseline, kept_tokens=np.minimum(kept, 1))
    group, parts = FakeMpi(3), [slice(0, 17), slice(17, 17), slice(17, 40)]
    with futures.ThreadPoolExecutor(3) as ranks:
        answers = list(
            ranks.map(
                lambda part: Step(local, METHOD, group=group).group_advantages(
                    rewards[part], ids[part], baseline, kept_tokens=np.minimum(kept, 1)[part]
                ),
                parts,
            )
        )
    for name in ("advantages", "baselines"):
        joined = np.concatenate([getattr(answer, name) for answer in answers])
        # A rank has the rows that it sent, whatever its number.
        assert joined.tobytes() == getattr(whole, name).tobytes()
    assert all(answer.metrics == whole.metrics for answer in answers)


def test_ranks_that_differ_in_their_arguments_are_named(local: cw.Client) -> None:
    group = FakeMpi(2)
    baseline = cw.GroupBaseline(estimator="dr_grpo")

    def ask(kept: list[int] | None) -> str:
        step = Step(local, METHOD, group=group)
        with pytest.raises(ValueError) as caught:
            step.group_advantages([1.0, 2.0], [0, 0], baseline, kept_tokens=kept)
        return str(caught.value)

    with futures.ThreadPoolExecutor(2) as ranks:
        sentences = set(ranks.map(ask, [[1, 1], None]))
    assert sentences == {"kept_tokens is given by some ranks; all need it, or none"}
    # Texts have numbers by their order, which is another one on another rank.
    with pytest.raises(TypeError, match="group_ids must be a one-dimensional sequence of integers"):
        Step(local, METHOD).group_advantages([1.0, 2.0], ["a", "b"], baseline)


class LostMpi(FakeMpi):
    """A communicator that lost a rank."""

    def Get_rank(self) -> int:
        return 0

    def Allreduce(self, place: object, vector: np.ndarray, op: Callable[..., Any]) -> None:
        raise TimeoutError("rank 1 did not come")


def test_groups_of_a_lost_rank_are_a_sentence(local: cw.Client) -> None:
    step = Step(local, METHOD, group=LostMpi(2))
    with pytest.raises(cw.CounterweightError, match="rows of 2 ranks cannot be gathered") as caught:
        step.group_advantages([1.0], [0], cw.GroupBaseline(estimator="dr_grpo"))
    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
