"""The service's calls: their requests, and how their answers are read.

The clients differ only in how they wait.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from counterweight_rl import messages
from counterweight_rl import partial_sums as sums_of_parts
from counterweight_rl.arguments import (
    INT64,
    UINT64,
    boolean,
    float_list,
    int_list,
    integer,
    text,
)
from counterweight_rl.arrays.batch import Batch, read_batch, role_name
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.arrays.out_argument import check_destinations
from counterweight_rl.arrays.requested_outputs import read_outputs
from counterweight_rl.arrays.version_spans import read_spans
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Correction, Progress, attribute
from counterweight_rl.errors import CounterweightError, InvalidRequestError, from_rpc_error
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.one_process import refuse_at_exit
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.result import Result
from counterweight_rl.settings import read_timeout
from counterweight_rl.step_totals import StepTotals
from counterweight_rl.suggestions import did_you_mean
from counterweight_rl.translation import Sent

if TYPE_CHECKING:
    import grpc
    from typing_extensions import Required

T = TypeVar("T")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

RPCS = (
    "Correct",
    "ListMethods",
    "GetServerInfo",
    "MergeSums",
    "Diagnose",
    "ReportStep",
    "DeclareRun",
    "GroupAdvantages",
)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call, which can be sent repeatedly.

    Attributes:
        rpc: One of ``RPCS``.
        read: Returns the caller's result of the answer's message; None if there is a correction,
            whose answer has arrays.
        timeout: Seconds; None: the client's. Infinite: no limit.
        request_id: The request's, if it has one.
        correction: A batch, which any transport can carry; every attempt reads its arrays.
        message: The request's message, without a batch and ``parts``.
        parts: The sums that a request of MergeSums has.
        examined: The batch that a request of Diagnose has.
    """

    rpc: str
    read: Callable[[messages.Message], T] | None
    timeout: float | None = None
    request_id: str | None = None
    correction: Correction[Any] | None = None
    message: messages.Message = field(default_factory=dict)
    parts: list[PartialSums] = field(default_factory=list)
    examined: Batch[Any] | None = None

    def __post_init__(self) -> None:
        read_timeout(self.timeout)

    def limit(self, default: float | None) -> float | None:
        """Returns the seconds of the call for a client's timeout; None: no limit."""
        return default if self.timeout is None else read_timeout(self.timeout)

    def failure(self, error: grpc.RpcError, *, closed: bool) -> CounterweightError:
        """Converts grpc's error to a typed one; ``closed`` if the client was closed meanwhile."""
        return from_rpc_error(error, self.request_id, closed=closed, sent=self.sent)

    @property
    def sent(self) -> Sent:
        """The parts of the request that errors name by index."""
        if self.examined is not None:
            return Sent(tuple(role_name(tensor.role) for tensor in self.examined.inputs))
        return Sent() if self.correction is None else self.correction.sent

    def report_begin(self) -> None:
        """Reports the begin of the call to ``progress``."""
        if self.correction is not None:
            self.correction.report(0)

    def report_end(self) -> None:
        """Reports the end of the call to ``progress``."""
        if self.correction is not None:
            self.correction.report(self.correction.num_bytes)


class Settings(TypedDict, total=False):
    """The arguments of ``correct`` that may stay the same from batch to batch, but the method."""

    padded_length: int | None
    run: str | None
    replica: str | None
    non_finite: NonFinitePolicy | str
    seed: int | None
    global_counts: GlobalCounts | None
    metrics: bool
    partial_sums: bool
    omit_loss: bool
    timeout: float | None


class FixedArguments(Settings, total=False):
    """The arguments of ``Client.prepare``."""

    method: Required[Method]
    outputs: Iterable[str] | None


if TYPE_CHECKING:  # a TypedDict is generic from Python 3.11 on

    class LossArguments(Settings, Generic[ArrayT], total=False):
        """The arguments of ``correct`` but those that a policy loss needs or chooses."""

        response_mask: Required[ArrayT]
        method: Required[Method]
        rollout_log_probs: ArrayT | None
        old_log_probs: ArrayT | None
        ref_log_probs: ArrayT | None
        sequence_lengths: Iterable[int] | None
        policy_version: int | None
        step: int | None
        request_id: str | None
        group_ids: Iterable[int] | None
        row_divisors: Iterable[float] | None
        policy_versions: ArrayT | None
        version_spans: Iterable[Any] | None
        out: Mapping[str, ArrayT] | None
        progress: Progress | None

    class CorrectArguments(LossArguments[ArrayT], total=False):
        """The arguments of ``correct``, for functions that pass them on."""

        current_log_probs: ArrayT | None
        advantages: ArrayT | None
        outputs: Iterable[str] | None


@contextmanager
def identified(request_id: str) -> Iterator[None]:
    """Gives refusals of this package the request's id, as those of the server have it."""
    try:
        yield
    except InvalidRequestError as error:
        error.request_id = request_id
        raise


def correct(
    *,
    response_mask: ArrayT,
    method: Method,
    rollout_log_probs: ArrayT | None = None,
    old_log_probs: ArrayT | None = None,
    current_log_probs: ArrayT | None = None,
    ref_log_probs: ArrayT | None = None,
    advantages: ArrayT | None = None,
    sequence_lengths: Iterable[int] | None = None,
    padded_length: int | None = None,
    outputs: Iterable[str] | None = None,
    run: str | None = None,
    replica: str | None = None,
    policy_version: int | None = None,
    step: int | None = None,
    request_id: str | None = None,
    non_finite: NonFinitePolicy | str = NonFinitePolicy.REJECT,
    seed: int | None = None,
    global_counts: GlobalCounts | None = None,
    group_ids: Iterable[int] | None = None,
    row_divisors: Iterable[float] | None = None,
    policy_versions: ArrayT | None = None,
    version_spans: Iterable[Any] | None = None,
    metrics: bool = True,
    partial_sums: bool = False,
    omit_loss: bool = False,
    out: Mapping[str, ArrayT] | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Call[Result[ArrayT]]:
    """Builds the call of ``Client.correct``; raises its errors about arguments."""
    refuse_at_exit()
    request_id = uuid.uuid4().hex if request_id is None else text("request_id", request_id)
    with identified(request_id):
        requested = read_outputs(
            outputs,
            method,
            has_loss_inputs=current_log_probs is not None
            and advantages is not None
            and not omit_loss,
        )
        batch = read_batch(
            {
                "rollout_log_probs": rollout_log_probs,
                "old_log_probs": old_log_probs,
                "current_log_probs": current_log_probs,
                "ref_log_probs": ref_log_probs,
                "advantages": advantages,
                "policy_versions": policy_versions,
            },
            response_mask,
            sequence_lengths,
            padded_length,
        )
        head: messages.Message = {
            "request_id": request_id,
            "layout": batch.layout,
            "method": messages.method_to_message(method),
            "outputs": requested.roles,
            "compute_loss": requested.compute_loss,
            "non_finite_policy": messages.choice_name("non_finite", non_finite, NonFinitePolicy),
        }
        if seed is not None:
            head["seed"] = integer("seed", seed, UINT64)
        head["omit_metrics"] = not boolean("metrics", metrics)
        if boolean("partial_sums", partial_sums):
            head["partial_sums"] = True
        if boolean("omit_loss", omit_loss):
            head["omit_loss"] = True
        if group_ids is not None:
            head["group_ids"] = int_list("group_ids", group_ids)
        if row_divisors is not None:
            head["row_divisors"] = float_list("row_divisors", row_divisors)
        if global_counts is not None:
            counts = messages.to_message("global_counts", global_counts, GlobalCounts)
            head["global_counts"] = counts
        labels = labels_of(run=run, replica=replica, policy_version=policy_version, step=step)
        if labels:
            head["labels"] = labels
        if version_spans is not None:
            head["version_spans"] = read_spans(version_spans, batch.num_sequences)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {type(progress).__name__}")
        destinations = check_destinations({} if out is None else out, batch, requested)
        correction = Correction(head, batch, requested, destinations, progress)
        return Call("Correct", None, timeout, request_id, correction)


ARGUMENTS = inspect.signature(correct).parameters
"""The arguments of ``correct`` by name."""
_REQUIRED = tuple(n for n, p in ARGUMENTS.items() if p.default is inspect.Parameter.empty)
FIXED_ARGUMENTS = frozenset({"method", "outputs", *Settings.__annotations__})
LOSS_ARGUMENTS = ARGUMENTS.keys() - {"outputs"}
"""The arguments of a policy loss."""


def takes(
    names: Collection[str], of: Mapping[str, inspect.Parameter] = ARGUMENTS
) -> Callable[[FunctionT], FunctionT]:
    """Shows ``help`` and ``inspect`` the arguments that a ``**call`` stands for."""

    def show(function: FunctionT) -> FunctionT:
        own = inspect.signature(function)
        shown = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        shown += [p for name, p in of.items() if name in {*names} - {*own.parameters}]
        function.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return function

    return show


def check_names(
    function: str,
    call: Mapping[str, object],
    names: Collection[str],
    required: Collection[str] = _REQUIRED,
) -> None:
    """Refuses unknown and missing arguments of a ``**call`` as Python does.

    Raises:
        TypeError: There is one.
    """
    for name in call:
        if name not in names:
            advice = did_you_mean(name, names)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{advice}")
    for name in required:
        if name in names and name not in call:
            raise TypeError(f"{function}() is missing the keyword argument {name!r}")


def labels_of(
    *, run: str | None, replica: str | None, policy_version: int | None, step: int | None
) -> messages.Message:
    """Returns the message of the labels that are not None."""
    labels: messages.Message = {}
    if run is not None:
        labels["run"] = text("run", run)
    if replica is not None:
        labels["replica"] = text("replica", replica)
    if policy_version is not None:
        labels["policy_version"] = integer("policy_version", policy_version, INT64)
    if step is not None:
        labels["step"] = integer("step", step, INT64)
    return labels


def merge(
    parts: PartialSums | Iterable[PartialSums], *, timeout: float | None = None
) -> Call[PartialSums]:
    """Builds the call of ``Client.merge``."""
    refuse_at_exit()
    listed = sums_of_parts.listed(parts)

    def read(answer: messages.Message) -> PartialSums:
        return _read_sums(answer)

    return Call("MergeSums", read, timeout, parts=listed)


def metrics_of(
    sums: PartialSums | Iterable[PartialSums],
    method: Method,
    *,
    publishes: bool,
    run: str | None = None,
    replica: str | None = None,
    policy_version: int | None = None,
    step: int | None = None,
    timeout: float | None = None,
) -> Call[StepTotals]:
    """Builds the call of ``Client.metrics_of``."""
    refuse_at_exit()
    listed = sums_of_parts.listed(sums)
    message: messages.Message = {"method": messages.method_to_message(method)}
    labels = labels_of(run=run, replica=replica, policy_version=policy_version, step=step)
    if labels and not publishes:
        raise ValueError(
            f"{', '.join(labels)}: sums are published under labels by a client with publish=, and "
            "this is none; a server adds the batches of a step itself"
        )
    if labels:
        message.update(request_id=uuid.uuid4().hex, labels=labels)

    def read(answer: messages.Message) -> StepTotals:
        totals = answer.get("answer")
        if totals is None:
            raise ValueError("it has no metrics")
        named = ("metrics", "rules", "loss", "non_finite_tokens", "warnings", "staleness")
        return StepTotals(
            sums=_read_sums(answer),
            counts=messages.field(_Merged, "counts", answer),
            counts_refusal=answer.get("countsRefusal", ""),
            **{name: attribute(totals, name) for name in named},
        )

    return Call("MergeSums", read, timeout, message=message, parts=listed)


@dataclass
class _Merged:
    counts: GlobalCounts | None


def _read_sums(answer: messages.Message) -> PartialSums:
    sums = answer.get("sums")
    # The library returns arrays.
    read = sums if isinstance(sums, PartialSums) else sums_of_parts.from_message(sums)
    if read is None:
        raise ValueError("it has no sums")
    return read


def list_methods(*, timeout: float | None = None) -> Call[list[MethodInfo]]:
    """Builds the call of ``Client.list_methods``."""
    refuse_at_exit()

    def read(answer: messages.Message) -> list[MethodInfo]:
        return [messages.from_message(MethodInfo, each) for each in answer.get("methods", ())]

    return Call("ListMethods", read, timeout)


def server_info(*, timeout: float | None = None) -> Call[ServerInfo]:
    """Builds the call of ``Client.server_info``."""
    refuse_at_exit()

    def read(answer: messages.Message) -> ServerInfo:
        info: ServerInfo = messages.from_message(ServerInfo, answer)
        return info

    return Call("GetServerInfo", read, timeout)
