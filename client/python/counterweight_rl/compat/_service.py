"""The client of the functions of this package."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.client import Client
from counterweight_rl.compat import _over_ranks, _releases, _settings, _step_reports
from counterweight_rl.compat._step_books import Books, receipt_of
from counterweight_rl.compat._step_reports import StepReports
from counterweight_rl.config import Dialect, Method
from counterweight_rl.errors import UnavailableError
from counterweight_rl.stack_level import stack_level
from counterweight_rl.transport.fallback import OnUnavailable

if TYPE_CHECKING:
    import torch

    from counterweight_rl.result import Result

_OF_A_CLIENT = ("target", "timeout", "retry_seconds", "on_unavailable", "token_file", "publish")


@dataclass(frozen=True)
class _Session:
    """The client, and the options sent with each batch."""

    client: Client
    run: str | None
    non_finite: NonFinitePolicy
    over_ranks: Any
    # None: it reports no steps.
    reports: StepReports | None
    # The process of a client made here; None for the caller's. A gRPC channel does not survive
    # fork().
    process: int | None


_lock = threading.Lock()


def _begin_in_child() -> None:
    """Frees what another thread may have held during the fork."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_in_child)

_chosen: Client | None = None
_given: Mapping[str, Any] = {}
_session: _Session | None = None  # created on demand


def use(
    client: Client | None = None,
    *,
    target: str | None = None,
    run: str | None = None,
    timeout: float | None = None,
    retry_seconds: float | None = None,
    non_finite: NonFinitePolicy | str | None = None,
    on_unavailable: OnUnavailable | None = None,
    token_file: str | None = None,
    publish: str | None = None,
    report_steps: bool | None = None,
    over_ranks: Any = None,
) -> None:
    """Sets the server and the options of ``counterweight_rl.compat`` for the whole process.

    Each argument overrides the environment variable of its name, such as ``COUNTERWEIGHT_RUN``;
    None leaves the variable in force, and the default if that is absent or empty. A call replaces
    all settings of earlier calls; forked processes inherit it.

    Args:
        client: The client to use; the caller closes it, and it brings its own target, timeout and
            retries. None: each process makes one from the other arguments.
        target: "host:port", "unix:/path/to/socket", or "local:" for this process. Default:
            localhost:50051.
        run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
            Default: none.
        timeout: Deadline of a call in seconds, retries included; > 0. "inf": no limit. Default:
            60 more than retry_seconds.
        retry_seconds: Seconds from a call's beginning within which it is retried when the server is
            away, restarts, or has no room; from 0, no retries, to timeout. Default: 60, or timeout
            if that is less.
        non_finite: Policy for a NaN or infinity where the mask is 1: "reject", "drop" or
            "neutralize", as in ``Client.correct``. Default: reject.
        on_unavailable: What the client does while the server is away after the retries: "raise",
            "local" or "identity", as in ``Client``. Default: raise.
        token_file: A file with the token of a server that requires one. Default: none.
        publish: With a target "local:": the server that gets the sums of each batch for its
            metrics, as in ``Client``. Default: none.
        report_steps: Whether optimizer steps are reported, as by ``Client.report_step``, while
            there is a run and a server, or ``publish``. A report has the batches that this process
            trained since the last step of a torch optimizer, the weights that their answers had,
            and those that their losses were multiplied by, where these functions compute the loss
            or multiply it; a thread sends it. Losses then also ask for weights and masks, 5 bytes a
            token. Default: True.
        over_ranks: Whether a function that a trainer calls once for each batch, on every rank,
            answers as one call with the rows of all ranks would: normalized weights and metrics.
            True: the ranks of torch.distributed's default group; or its process group of ranks with
            different rows. It costs one reduction of 8 KB a call. Functions that ranks may call a
            different number of times are then a ValueError, because some would wait for others.
            Default: False, each system's own answer.

    Raises:
        ValueError: The value of an argument or variable is out of its range, or a setting of the
            client is given beside a client.
        TypeError: An argument of a wrong type.
    """
    global _chosen, _given, _session
    given = {
        "target": target,
        "run": run,
        "timeout": timeout,
        "retry_seconds": retry_seconds,
        "non_finite": non_finite,
        "on_unavailable": on_unavailable,
        "token_file": token_file,
        "publish": publish,
        "report_steps": report_steps,
        "over_ranks": over_ranks,
    }
    if client is not None:
        beside = [name for name in _OF_A_CLIENT if given[name] is not None]
        if beside:
            raise ValueError(
                f"{' and '.join(beside)} cannot be given with a client, which has its own"
            )
    _settings.read(given)
    with _lock:
        before = _session
        _chosen, _given, _session = client, given, None
        _step_reports.attach(None)
    if before is not None and before.reports is not None:
        before.reports.close()


def reports_dropped() -> int:
    """Returns how many reports of steps the server did not get, in this process."""
    session = _session
    return 0 if session is None or session.reports is None else session.reports.dropped


def client() -> Client:
    """Returns the client of ``counterweight_rl.compat``.

    Raises:
        ValueError: An environment variable has a value out of its range.
    """
    return _current().client


def check_settings() -> None:
    """Reads the settings, and raises the ValueError of one that is out of its range."""
    with _lock:
        _count_steps(_settings.read(_given))


def check() -> None:
    """Reads the settings and calls the server once, so that a wrong setting fails at once.

    Its own connection is closed before it returns, because a caller may fork later. With an
    ``on_unavailable`` other than "raise" an absent server is a warning.

    Raises:
        ValueError: A setting out of its range.
        CounterweightError: The server does not answer, or refuses.
    """
    with _lock:
        chosen, settings = _chosen, _settings.read(_given)
        _count_steps(settings)
    if chosen is not None:
        chosen.server_info()
        return
    with settings.connect() as asked:
        try:
            asked.server_info()
        except UnavailableError as error:
            if settings.on_unavailable == "raise":
                raise UnavailableError(
                    f"no server answers at {settings.target}, the target of "
                    f"{_settings.VARIABLE_PREFIX}TARGET or compat.use: {error}"
                ) from None
            warnings.warn(
                f"no server answers at {settings.target}; until one does, answers are those of "
                f"on_unavailable={settings.on_unavailable!r}: {error}",
                stacklevel=stack_level(),
            )


def correct(
    system: str, block: Mapping[str, Any], *, release: str | None = None, **arguments: Any
) -> Result[torch.Tensor]:
    """Calls ``Client.correct`` with a dialect; the server's warnings become Python's.

    ``release``: the release to reproduce; None: the installed peer's.
    """
    if release is None:
        release = _releases.release_of(system)
    return ask(Dialect(system, block, release=release), **arguments)


def ask(
    method: Method,
    *,
    own_warning: str | None = None,
    once_per_batch: bool | None = False,
    given_weights: torch.Tensor | None = None,
    uncorrected: str | None = None,
    **arguments: Any,
) -> Result[torch.Tensor]:
    """Calls ``Client.correct`` with the settings; the server's warnings become Python's.

    Args:
        method: The method.
        own_warning: The beginning of a warning about what the caller chose and not its user.
        once_per_batch: Whether every rank makes this call once for each batch, so that it can be
            ``over_ranks``; None: no number of it depends on other ranks' rows.
        given_weights: Weights that the advantages were multiplied by, for the step's report.
        uncorrected: Why a loss has no correction although its configuration has one.
        **arguments: Of ``Client.correct``.

    Raises:
        ValueError: ``over_ranks`` is set, and the ranks may make a different number of such calls.
    """
    session = _current()
    arguments = _without_empty(arguments)
    if session.over_ranks is not False and once_per_batch is False:
        raise ValueError(_over_ranks.REFUSAL)
    reports = session.reports if _trains(arguments) else None
    if reports is not None:
        arguments["outputs"] = None  # the weights too, if the method has some
    call = {"run": session.run, "non_finite": session.non_finite, **arguments}
    result: Result[torch.Tensor]
    if session.over_ranks is not False and once_per_batch and arguments.get("metrics", True):
        result = _over_ranks.correct(session.client, session.over_ranks, method, call)
    else:
        result = session.client.correct(method=method, **call)
    if reports is not None:
        mask, lengths = arguments["response_mask"], arguments.get("sequence_lengths")

        def enter(books: Books) -> None:
            if given_weights is not None:
                receipt = receipt_of(given_weights, mask, lengths, mask)
                books.enter(receipt, receipt)
            elif uncorrected is not None:
                books.enter_uncorrected(mask, uncorrected)
            else:
                books.enter_answer(result, mask, lengths)

        reports.enter(enter)
    for sentence in result.warnings:
        if own_warning is not None and sentence.startswith(own_warning):
            continue
        warnings.warn(sentence, stacklevel=stack_level())
    return result


def _trains(arguments: Mapping[str, Any]) -> bool:
    """Whether a call's loss gets a backward pass."""
    current = arguments.get("current_log_probs")
    if current is None or arguments.get("advantages") is None:
        return False
    torch = sys.modules["torch"]
    outputs = arguments.get("outputs")
    has_gradient = outputs is None or "gradient" in outputs
    return bool(has_gradient and current.requires_grad and torch.is_grad_enabled())


def enter(act: Callable[[Books], None]) -> None:
    """Enters batches of a trainer that multiplies its own losses into the step's books, if any."""
    torch = sys.modules.get("torch")
    reports = _current_reports()
    if reports is not None and torch is not None and torch.is_grad_enabled():
        reports.enter(act)


def weighed(
    result: Result[torch.Tensor],
    response_mask: torch.Tensor,
    weights: torch.Tensor | None,
    mask: torch.Tensor | None,
    lengths: list[int] | None = None,
) -> None:
    """Enters that token losses were multiplied by ``weights``, and their mask is ``mask``."""
    enter(lambda books: books.enter_answer(result, response_mask, lengths, weights, mask))


def end_step() -> None:
    """Ends the step of a trainer whose optimizer is in another process."""
    reports = _current_reports()
    if reports is not None:
        reports.end_step()


def set_step(number: int) -> None:
    """Sets the trainer's own number of the step that ends next."""
    reports = _current_reports()
    if reports is not None:
        reports.set_number(number)


def reports_steps() -> bool:
    """Returns whether steps are reported."""
    return _current_reports() is not None


def _current_reports() -> StepReports | None:
    try:
        return _current().reports
    except Exception:
        # Without a client there is nothing to report, and corrections raise this.
        return None


def _without_empty(arguments: dict[str, Any]) -> dict[str, Any]:
    """Leaves packed sequences without positions out.

    Peers' advantages are per token; as many sequences as positions would fit another reading.
    """
    lengths = arguments.get("sequence_lengths")
    if lengths is None or all(lengths) or not any(lengths):
        return arguments
    rows = [i for i, length in enumerate(lengths) if length]
    per_row = {
        n: arguments[n] for n in ("sequence_lengths", "row_divisors", "group_ids") if n in arguments
    }
    changed: dict[str, Any] = {n: a and [a[i] for i in rows] for n, a in per_row.items()}
    return {**arguments, **changed}


def policy_loss(
    system: str, block: Mapping[str, Any], *, current_log_probs: torch.Tensor, **arguments: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a dialect's policy loss as a node of autograd, and its metrics."""
    from counterweight_rl.torch import attach, outputs_for

    result = correct(
        system,
        block,
        current_log_probs=current_log_probs,
        outputs=outputs_for(current_log_probs),
        **arguments,
    )
    return attach(current_log_probs, result), result.metrics


def metrics_of(metrics: dict[str, float], *prefixes: str) -> dict[str, float]:
    """Returns the metrics with a name that has one of the prefixes."""
    return {name: value for name, value in metrics.items() if name.startswith(prefixes)}


def _current() -> _Session:
    global _session
    with _lock:
        if _session is None or _session.process not in (None, os.getpid()):
            settings = _settings.read(_given)
            chosen = settings.connect() if _chosen is None else _chosen
            process = os.getpid() if _chosen is None else None
            reports = _open_reports(settings, chosen)
            _session = _Session(
                chosen, settings.run, settings.non_finite, settings.over_ranks, reports, process
            )
        return _session


def _reports_steps(settings: _settings.Settings) -> bool:
    return settings.run is not None and settings.report_steps and "torch" in sys.modules


def _count_steps(settings: _settings.Settings) -> None:
    """Counts optimizer steps from the start, so that ranks number them alike."""
    if _reports_steps(settings):
        _step_reports.count_steps()


def _open_reports(settings: _settings.Settings, chosen: Client) -> StepReports | None:
    reports = None
    if settings.run is not None and _reports_steps(settings):
        publisher = chosen._connection.open_reporter()
        if publisher is not None:
            reports = StepReports(settings.run, publisher)
            _step_reports.count_steps()
    _step_reports.attach(reports)
    return reports
