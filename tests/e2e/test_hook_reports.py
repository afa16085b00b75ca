"""Hooks and compat report the steps of a trainer's optimizer by themselves."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import compat
from counterweight_rl.compat import _service
from counterweight_rl.transport import publisher
from server_process import ServerProcess, wait_until

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

import counterweight_rl.compat.nemo_rl  # noqa: E402
import counterweight_rl.compat.slime  # noqa: E402
from counterweight_rl.compat import areal, openrlhf, skyrl, verl  # noqa: E402
from counterweight_rl.hooks import miles, nemo_rl, slime, tinker  # noqa: E402
from counterweight_rl.hooks.trl import CorrectionMixin  # noqa: E402

# The last row has no token.
NUMBERS = {
    n: np.nan_to_num(array[:6], nan=-1.0) for n, array in padded_batch(7, 40, seed=5).items()
}
BATCH = {
    n: torch.from_numpy(array.clip(max=-1e-3) if "log_probs" in n else array)
    for n, array in NUMBERS.items()
}
MASK = BATCH["response_mask"]
TOKENS = int(MASK.sum())
HALVES = (slice(3), slice(3, 6))
SKYRL = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.02}


@pytest.fixture
def run(
    server: ServerProcess, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The run of a test, whose reports go to the server."""
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 60.0)  # for a busy machine
    monkeypatch.setattr(slime, "_started", None)
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", request.node.name)[:64]
    compat.use(target=server.address, run=name)
    yield name
    compat.use(None)


class Model:
    """Adds one number to log-probs; it trains."""

    def __init__(self) -> None:
        self.shift = torch.nn.Parameter(torch.zeros(()))
        self.optimizer = torch.optim.SGD([self.shift], lr=1e-3)

    def log_probs(self, rows: slice = slice(None)) -> Any:
        return BATCH["current_log_probs"][rows] + self.shift

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def reported(server: ServerProcess, run: str, steps: int = 1) -> dict[str, int]:
    """Returns the states of a run's steps, once the server has them all."""
    series = f'counterweight_step_steps_total{{run="{run}"}}'
    wait_until(lambda: server.count(series) >= steps)
    assert server.count(series) == steps
    pattern = rf'step_receipts_total{{run="{run}",state="(\w+)"}} (\d+)'
    return {state: int(n) for state, n in re.findall(pattern, server.scrape()) if n != "0"}


def tokens(server: ServerProcess, run: str, entry: str = "trained") -> float:
    return server.count(f'counterweight_step_tokens_total{{entry="{entry}",run="{run}"}}')


def skipped(server: ServerProcess, run: str, reason: str) -> float:
    labels = f'reason="{reason}",run="{run}"'
    return server.count(f"counterweight_step_skipped_batches_total{{{labels}}}")


def bypass(model: Model, rows: slice) -> Any:
    """A loss of verl with its correction."""
    correction = {"rollout_is": "token", "rollout_is_threshold": 1.02, "bypass_mode": True}
    config = {"policy_loss": {"rollout_correction": correction}}
    loss, _ = verl.compute_policy_loss_bypass_mode(
        BATCH["rollout_log_probs"][rows],
        model.log_probs(rows),
        BATCH["advantages"][rows],
        MASK[rows],
        config=config,
    )
    return loss


def given(model: Model, rows: slice) -> Any:
    """A loss of verl with weights that its driver made."""
    weights = (BATCH["old_log_probs"] - BATCH["rollout_log_probs"]).exp()[rows]
    loss, _ = verl.compute_policy_loss_vanilla(
        BATCH["old_log_probs"][rows],
        model.log_probs(rows),
        BATCH["advantages"][rows],
        MASK[rows],
        config={},
        rollout_is_weights=weights,
    )
    return loss


def of_openrlhf(model: Model, rows: slice) -> Any:
    loss = openrlhf.PolicyLoss(
        is_correction_level="token", is_correction_mode="clip", is_correction_threshold=[0.9, 1.1]
    )
    value, *_ = loss(
        model.log_probs(rows),
        BATCH["old_log_probs"][rows],
        BATCH["advantages"][rows],
        MASK[rows],
        BATCH["rollout_log_probs"][rows],
    )
    return value


def samples(model: Model, rows: slice) -> dict[str, list[Any]]:
    """The tokens of each row, as slime and miles have them."""
    lengths = MASK[rows].sum(1).int().tolist()
    tensors = {**BATCH, "pg_loss": model.log_probs()}
    return {
        n: [row[:k] for row, k in zip(t[rows], lengths, strict=True)] for n, t in tensors.items()
    }


def weighed_by(function: Callable[..., Any], **args: Any) -> Callable[[Model, slice], Any]:
    """A loss of slime that a function weighs."""

    def loss(model: Model, rows: slice) -> Any:
        flat = samples(model, rows)
        weighted, masks, _ = function(
            SimpleNamespace(**{"tis_clip": 1.02, "tis_clip_low": 0.0, **args}),
            pg_loss=torch.cat(flat["pg_loss"]),
            train_log_probs=flat["old_log_probs"],
            rollout_log_probs=flat["rollout_log_probs"],
            loss_masks=flat["response_mask"],
            total_lengths=[],
            response_lengths=[],
        )
        return (weighted * torch.cat(masks)).sum()

    return loss


of_slime = weighed_by(slime.correct)
of_slime_itself = weighed_by(compat.slime.vanilla_tis_function)
of_icepop = weighed_by(compat.slime.icepop_function)
of_mis = weighed_by(
    compat.slime.compute_mis_weights_with_cp,
    use_tis=True,
    tis_mode="truncate",
    tis_level="token",
    tis_upper_bound=1.02,
    use_rs=False,
)


def of_miles(model: Model, rows: slice) -> Any:
    """A loss of miles with a method that weighs its advantages."""
    flat = samples(model, rows)
    names = {"pg_loss": "current_log_probs"}
    tensors = {
        names.get(n, n): torch.cat(of_rows)
        for n, of_rows in flat.items()
        if n != "current_log_probs"
    }
    args = SimpleNamespace(
        counterweight_method={"preset": "token_tis", "upper": 1.02},
        advantage_estimator="grpo",
        calculate_per_token_loss=False,
        eps_clip=0.2,
        eps_clip_high=0.2,
        use_tis=True,
        use_kl_loss=False,
        tis_clip=2.0,
    )
    lengths = [len(row) for row in flat["pg_loss"]]
    batch = {"loss_masks": flat["response_mask"], "rollout_mask_sums": lengths}
    loss, _, _ = miles._policy_loss(args, batch, {**tensors, "sequence_lengths": lengths})
    return loss


class NemoLoss:
    """The members of NeMo-RL's loss that the hook reads."""

    loss_type = SimpleNamespace(value="token_level")
    metric_normalizations: Any = None
    disable_ppo_ratio = force_on_policy_ratio = use_cispo = False
    sequence_level_importance_ratios = False
    ratio_clip_min = ratio_clip_max = 0.2
    ratio_clip_c = None
    use_importance_sampling_correction = True
    truncated_importance_sampling_type = "tis"
    truncated_importance_sampling_ratio = 1.02
    truncated_importance_sampling_ratio_min = None

    def __call__(self, next_token_logprobs: Any, data: Any, **_: Any) -> Any:
        return (next_token_logprobs * data["advantages"][:, 1:]).sum(), {}


def of_nemo_weighed(model: Model, rows: slice) -> Any:
    return of_nemo(model, rows, {"preset": "token_tis", "upper": 1.02})


def of_nemo(model: Model, rows: slice, method: Any = None) -> Any:
    return nemo_loss(nemo_rl.PolicyLoss(NemoLoss(), method), model, rows)


def of_nemo_itself(model: Model, rows: slice) -> Any:
    settings = {
        "reference_policy_kl_penalty": 0.0,
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "tis",
        "truncated_importance_sampling_ratio": 1.02,
    }
    return nemo_loss(compat.nemo_rl.ClippedPGLossFn(settings), model, rows)


def nemo_loss(loss_fn: Any, model: Model, rows: slice) -> Any:
    data = {
        "advantages": BATCH["advantages"],
        "generation_logprobs": BATCH["rollout_log_probs"],
        "prev_logprobs": BATCH["old_log_probs"],
        "token_mask": MASK.float(),
        "sample_mask": torch.ones(6),
    }
    data = {
        n: torch.nn.functional.pad(t[rows], (1, 0)) if t.ndim == 2 else t[rows]
        for n, t in data.items()
    }
    loss, _ = loss_fn(model.log_probs(rows), data, None, None)
    return loss


def of_areal(model: Model, rows: slice) -> Any:
    loss, _ = areal.ppo_actor_loss_fn(
        model.log_probs(rows),
        BATCH["old_log_probs"][rows],
        BATCH["rollout_log_probs"][rows],
        BATCH["advantages"][rows],
        eps_clip=0.2,
        loss_mask=MASK[rows].bool(),
        rejection_sampling={"action": "clamp", "upper": 1.02},
    )
    return loss


def of_skyrl(model: Model, rows: slice) -> Any:
    loss, mask, _ = skyrl.apply_off_policy_correction(
        model.log_probs(rows),
        BATCH["old_log_probs"][rows],
        BATCH["rollout_log_probs"][rows],
        MASK[rows],
        SKYRL,
    )
    return (loss * mask).sum()


LOSSES = [
    *(bypass, given, of_openrlhf, of_skyrl, of_miles, of_nemo, of_nemo_weighed),
    *(of_slime, of_slime_itself, of_icepop, of_mis, of_nemo_itself, of_areal),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_each_step_is_reported_with_its_micro_batches(
    server: ServerProcess, run: str, loss: Callable[[Model, slice], Any]
) -> None:
    model = Model()
    for _ in range(3):
        for rows in HALVES:
            loss(model, rows).backward()
        model.step()
        with torch.no_grad():
            loss(model, slice(None))  # an evaluation trains nothing
    assert reported(server, run, 3) == {"used": 3}
    assert tokens(server, run) == tokens(server, run, "corrected") == 3 * TOKENS
    changed = f'counterweight_step_changed_tokens_total{{entry="applied",run="{run}"}}'
    assert server.metric(changed) > 0
    assert compat.reports_dropped() == 0


def test_the_gradient_is_the_same_with_and_without_reports(server: ServerProcess, run: str) -> None:
    gradients = []
    for reports in (True, False):
        compat.use(target=server.address, run=run, report_steps=reports)
        model = Model()
        bypass(model, slice(None)).backward()
        gradients.append(model.shift.grad)
        model.step()
    assert torch.equal(*gradients)
    compat.use(None)
    assert reported(server, run) == {"used": 1}


def test_a_step_that_the_scaler_leaves_out_counts_with_the_next(
    server: ServerProcess, run: str
) -> None:
    model = Model()
    bypass(model, slice(None)).backward()
    model.optimizer.zero_grad()  # not finite
    bypass(model, slice(None)).backward()
    model.step()
    assert reported(server, run) == {"used": 1}
    assert tokens(server, run) == 2 * TOKENS


def test_an_exception_in_a_step_ends_nothing(server: ServerProcess, run: str) -> None:
    model = Model()
    bypass(model, HALVES[0]).backward()
    with pytest.raises(ValueError, match="advantages"):
        _service.policy_loss(
            "verl",
            {},
            current_log_probs=model.log_probs(),
            old_log_probs=BATCH["old_log_probs"],
            advantages=BATCH["advantages"][:1],
            response_mask=MASK,
        )
    bypass(model, HALVES[1]).backward()
    model.step()
    assert reported(server, run) == {"used": 1}
    assert tokens(server, run) == TOKENS


def test_other_optimizers_end_no_step(server: ServerProcess, run: str) -> None:
    model, critic = Model(), Model()
    second = torch.optim.Adam([model.shift])
    for _ in range(2):
        critic.step()
        bypass(model, slice(None)).backward()
        second.step()
        model.step()
    assert reported(server, run, 2) == {"used": 2}


def test_a_run_without_weights_reports_nothing(server: ServerProcess, run: str) -> None:
    model = Model()
    arguments = (BATCH["old_log_probs"], model.log_probs(), BATCH["advantages"], MASK)
    verl.compute_policy_loss_vanilla(*arguments, config={})[0].backward()
    model.step()
    assert tokens(server, run) == 0
    given(model, slice(None)).backward()
    model.step()
    # From now on what has no weights shows.
    verl.compute_policy_loss_vanilla(*arguments, config={})
    model.step()
    assert reported(server, run, 2) == {"used": 1, "not_issued": 1}
    assert tokens(server, run) == 2 * TOKENS
    assert tokens(server, run, "corrected") == TOKENS


def test_skyrl_without_rollout_log_probs_says_so(server: ServerProcess, run: str) -> None:
    model = Model()
    for _ in range(2):
        arguments = (model.log_probs(), BATCH["old_log_probs"], None, MASK)
        loss, _, _ = skyrl.apply_off_policy_correction(*arguments, SKYRL)
        loss.sum().backward()
        model.step()
    assert reported(server, run, 2) == {"not_issued": 2}
    assert skipped(server, run, "no_rollout_log_probs") == 2
    assert tokens(server, run) == 2 * TOKENS


def test_skyrl_in_bfloat16_rounds_the_weights(server: ServerProcess, run: str) -> None:
    model = Model()
    names = ("old_log_probs", "rollout_log_probs")
    old, rollout = (BATCH[name].bfloat16() for name in names)
    arguments = (model.log_probs(), old, rollout, MASK)
    skyrl.apply_off_policy_correction(*arguments, {**SKYRL, "token_tis_ratio_clip_high": 9.0})
    model.step()
    assert set(reported(server, run)) <= {"rounded", "replaced"}


def test_tinkers_optimizer_is_elsewhere(server: ServerProcess, run: str) -> None:
    loss_fn = tinker.policy_loss({"preset": "token_tis", "upper": 1.02})
    one = SimpleNamespace(to_torch=lambda: BATCH["rollout_log_probs"][0])
    inputs = {"logprobs": one, "advantages": one}
    for _ in range(2):
        current = BATCH["current_log_probs"][0].clone().requires_grad_()
        loss_fn([SimpleNamespace(loss_fn_inputs=inputs)], [current])
    assert reported(server, run, 2) == {"used": 2}


class Trl:
    """The parts of TRL's trainer around the mixin: rows are shuffled and split."""

    vllm_importance_sampling_correction = True
    vllm_importance_sampling_mode = "token_truncate"
    vllm_importance_sampling_clip_max, vllm_importance_sampling_clip_min = 3.0, None
    use_vllm = True

    def __init__(self) -> None:
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(gather=lambda tensor: tensor.reshape(1))
        self.state = SimpleNamespace(global_step=7)
        self._metrics: Any = {"train": collections.defaultdict(list)}
        self.trained = Model()

    def _generate_and_score_completions(self, _: Any) -> dict[str, Any]:
        return {
            "completion_mask": MASK.long(),
            "old_per_token_logps": BATCH["old_log_probs"],
            "sampling_per_token_logps": BATCH["rollout_log_probs"],
        }

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
        ratio = inputs["importance_sampling_ratio"]
        return (self.trained.shift * ratio * inputs["completion_mask"]).sum()


def doubled(inputs: dict[str, Any]) -> None:
    inputs["importance_sampling_ratio"] = 2 * inputs["importance_sampling_ratio"]


def of_ones(inputs: dict[str, Any]) -> None:
    inputs["importance_sampling_ratio"] = torch.ones_like(inputs["importance_sampling_ratio"])


def untouched(inputs: dict[str, Any]) -> None:
    del inputs


@pytest.mark.parametrize(
    "method", [None, {"preset": "geo_rs_token_tis", "keep_lower": 0.9, "keep_upper": 1.1}]
)
@pytest.mark.parametrize(
    ("alter", "state"), [(untouched, "used"), (doubled, "replaced"), (of_ones, "unused")]
)
def test_trls_own_loss_is_compared_row_by_row(
    server: ServerProcess,
    run: str,
    method: Any,
    alter: Callable[[dict[str, Any]], None],
    state: str,
) -> None:
    class Trainer(CorrectionMixin, Trl):
        counterweight_method = method

    trainer = Trainer()
    batch = trainer._generate_and_score_completions(None)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    for rows in order.split(3):
        inputs = {name: tensor[rows] for name, tensor in batch.items()}
        alter(inputs)
        trainer.compute_loss(None, inputs, num_items_in_batch=1).backward()
    trainer.trained.step()
    assert reported(server, run) == {state: 1}
    assert tokens(server, run) == TOKENS


@pytest.mark.usefixtures("local_library")
def test_a_local_client_reports_to_the_server_that_it_publishes_to(
    server: ServerProcess, run: str
) -> None:
    compat.use(target="local:", publish=server.address, run=run)
    model = Model()
    bypass(model, slice(None)).backward()
    model.step()
    assert reported(server, run) == {"used": 1}
    compat.use(target="local:", run=run)  # nothing to report to
    bypass(model, slice(None)).backward()
    model.step()
    assert compat.reports_dropped() == 0


def test_a_callers_client_reports_from_a_thread_too(server: ServerProcess, run: str) -> None:
    with cw.Client(server.address) as client:
        compat.use(client, run=run)
        model = Model()
        bypass(model, slice(None)).backward()
        model.step()
        assert reported(server, run) == {"used": 1}
        compat.use(None)


def test_a_frozen_server_holds_no_step_up(
    start_server: Callable[..., ServerProcess], run: str
) -> None:
    server = start_server()
    compat.use(target=server.address, run=run)
    model = Model()
    for _ in range(20):
        bypass(model, HALVES[0]).backward()
    server.freeze()
    try:
        start = time.monotonic()
        model.step()
        assert time.monotonic() - start < 2
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert reported(server, run) == {"used": 1}


def test_an_absent_server_is_warned_of_once(
    start_server: Callable[..., ServerProcess],
    run: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 2.0)
    server = start_server()
    compat.use(target=server.address, run=run)
    model = Model()
    bypass(model, slice(None)).backward()
    server.stop()
    model.step()
    for _ in range(3):
        _service.enter(lambda books: books.enter_uncorrected(MASK, "late"))
        model.step()
    wait_until(lambda: "cannot be sent" in caplog.text)
    start = time.monotonic()
    session = _service._session
    compat.use(None)
    assert time.monotonic() - start < 10
    assert session is not None
    assert session.reports is not None
    assert session.reports.dropped == 4
    assert caplog.text.count("reports of steps cannot be sent") == 1


def test_a_failure_of_the_books_stops_no_training(
    server: ServerProcess,
    run: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    with monkeypatch.context() as patch:
        patch.setattr("counterweight_rl.compat._step_books.applied", None)
        for _ in range(2):
            for rows in HALVES:
                bypass(model, rows).backward()
            model.step()
    assert compat.reports_dropped() == 2
    assert caplog.text.count("is not reported: TypeError") == 1
    bypass(model, slice(None)).backward()
    model.step()
    assert reported(server, run) == {"used": 1}


def test_a_forked_child_has_books_of_its_own(server: ServerProcess, run: str) -> None:
    model = Model()
    bypass(model, HALVES[0]).backward()
    child = os.fork()
    if child == 0:
        # A worker that loads data: what it inherited is its parent's to report.
        model.optimizer.step()
        os._exit(_service._session.reports._books.num_batches)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bypass(model, HALVES[1]).backward()
    model.step()
    assert reported(server, run) == {"used": 1}
    assert tokens(server, run) == TOKENS


RANKS = """
import sys
import torch, torch.distributed as dist
from counterweight_rl import compat
import test_hook_reports as tests
rank, world, store, target, run = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
dist.init_process_group("gloo", init_method=f"file://{store}", world_size=world, rank=rank)
compat.use(target=target, run=run)
compat.client()
model = tests.Model()
for _ in range(2):
    for row in range(rank, 6, world):
        tests.bypass(model, slice(row, row + 1)).backward()
    dist.all_reduce(model.shift.grad)
    model.step()
from counterweight_rl.transport import publisher
publisher.FLUSH_SECONDS = 60.0
"""


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_report_their_parts(
    server: ServerProcess, run: str, world: int, tmp_path: pathlib.Path
) -> None:
    here = pathlib.Path(__file__).parent
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANKS,
                *map(str, (rank, world, tmp_path / "store")),
                server.address,
                run,
            ],
            cwd=here,
        )
        for rank in range(world)
    ]
    assert [rank.wait(300) for rank in ranks] == [0] * world
    assert reported(server, run, 2) == {"used": 2}
    assert tokens(server, run) == tokens(server, run, "corrected") == 2 * TOKENS
    assert np.isclose(tokens(server, run, "trained") / 2, TOKENS)
