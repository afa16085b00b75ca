"""The answer to ``Client.correct``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, TypeAlias

from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.summary import summarize

# None in answers to requests without this output. The caller knows the request, so that type
# checkers require no test for None.
MaybeNone: TypeAlias = Any


@dataclass(frozen=True)
class RuleSummary:
    """Effect of one rejection rule.

    Attributes:
        name: The rule's name, e.g. "mean_k3".
        dropped_tokens: Tokens of response_mask that it dropped or gave the weight 0.
        dropped_sequences: Sequences with at least one such token.
    """

    name: str
    dropped_tokens: int
    dropped_sequences: int


@dataclass(frozen=True)
class Timing:
    """Seconds spent in each stage on the server.

    Attributes:
        decode_seconds: Reading and checking the request.
        queue_seconds: Waiting for room and for a worker.
        compute_seconds: Computing, transfers to a device included.
        encode_seconds: Writing the response.
        receive_seconds: Streams: from the admission to the last byte, including computation in that
            time; 0 otherwise.
    """

    decode_seconds: float
    queue_seconds: float
    compute_seconds: float
    encode_seconds: float
    receive_seconds: float = 0.0


@dataclass(frozen=True)
class StalenessBucket:
    """The tokens of one range of staleness.

    Attributes:
        first: Least staleness.
        last: Largest staleness; None: no end.
        tokens: Tokens in this range.
        kl: Mean of -l over them, nats, where l is the log ratio of the method's drift metrics; NaN
            without tokens.
        k3: Mean of exp(l) - 1 - l over them, nats; NaN without tokens.
    """

    first: int
    last: int | None
    tokens: int
    kl: float
    k3: float

    @property
    def label(self) -> str:
        """The range as Prometheus shows it: "2", "3-4", "9+"."""
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class ResolvedBound:
    """A bound that the run's calm steps decide: ``upper="calm:0.999:2"``.

    Attributes:
        field: The bound, "method.parameters[upper]" or "method.importance_weight.upper".
        value: The bound of this answer, a ratio.
        is_calm: Whether it is the calm steps'. False: the method's own, as the step is one of those
            that make the calm level.
        calm_steps: The calm steps that ``value`` is of, or that the server has so far.
        calm_weights: Weights of these steps that were counted: of 65,536 positions of a batch.
    """

    field: str
    value: float
    is_calm: bool
    calm_steps: int
    calm_weights: int


@dataclass(frozen=True)
class Staleness:
    """Drift by staleness: policy_version minus the version that sampled the token.

    Attributes:
        buckets: Tokens with response_mask 1 by staleness 0, 1, 2, 3 to 4, 5 to 8, 9 or more.
        unknown_tokens: Those of an unknown version, in no bucket.
        mean: Mean over the buckets' tokens; NaN if there are none.
        max: Largest; 0 if no version is known.
    """

    buckets: tuple[StalenessBucket, ...]
    unknown_tokens: int
    mean: float
    max: int

    def __repr__(self) -> str:
        """Returns one line: mean, largest, and tokens and k3 by staleness."""
        parts = [f"mean {self.mean:.3g}", f"max {self.max}"]
        parts += [f"{b.label}: {b.tokens} (k3 {b.k3:.3g})" for b in self.buckets if b.tokens]
        if self.unknown_tokens:
            parts.append(f"unknown: {self.unknown_tokens}")
        return f"Staleness({', '.join(parts)})"


@dataclass(frozen=True)
class Result(Generic[ArrayT]):
    """One corrected batch.

    Arrays have the kind (numpy array, or torch tensor on the same device) and shape of the inputs,
    are writable and belong to the caller; those named in ``out`` are the caller's arrays. An output
    that was not requested, or that the method lacks, is None.

    Attributes:
        weights: float32, the shape of response_mask. Importance weight of each token; exactly 0
            where response_mask is 0.
        keep_mask: The dtype and shape of response_mask. 1 (True) = the token stays in the loss.
        token_reasons: The shape of response_mask. Bit i set = rule i of ``rules`` dropped the token
            or zeroed its weight; bit 15 = dropped because it was non-finite. uint16 in numpy; int32
            in torch, which lacks bit operations on uint16.
        sequence_reasons: [B], dtype of token_reasons. The OR of the sequence's token reasons.
        loss: Policy loss, in the unit of advantages; None unless the method has a loss. NaN where a
            dialect's system returns NaN.
        gradient: float32, the shape of response_mask. d loss / d current_log_probs, in the unit of
            advantages; exactly 0 where response_mask is 0.
        metrics: Metrics by name; a dialect's have that system's names. NaN if a mean has no term.
        rules: One summary per rejection rule, in the order of the configuration.
        non_finite_tokens: Positions with response_mask 1 that held a non-finite number and were
            dropped or neutralized; with dialect "trl" also those with a rollout log-prob of NaN,
            which TRL since 1.11 reads as unknown.
        warnings: Sentences for the caller that are not errors, such as a rule that drops more than
            half of the tokens it covers.
        request_id: The request's id.
        numerics_version: Changes when any bit of any answer changes.
        backend: "cpu" or "cuda".
        timing: The server's time in each stage.
        staleness: Drift by staleness; None without versions of tokens, and with ``metrics=False``.
        sums: The batch's sums, which those of other parts of the step are added to; None unless
            ``partial_sums``.
        resolved_bounds: The number of each bound that was left to the run's calm steps.
    """

    weights: ArrayT | MaybeNone
    keep_mask: ArrayT | MaybeNone
    token_reasons: ArrayT | MaybeNone
    sequence_reasons: ArrayT | MaybeNone
    loss: float | None
    gradient: ArrayT | MaybeNone
    metrics: dict[str, float]
    rules: tuple[RuleSummary, ...]
    non_finite_tokens: int
    warnings: tuple[str, ...]
    request_id: str
    numerics_version: int
    backend: str
    timing: Timing
    staleness: Staleness | MaybeNone = None
    sums: PartialSums | MaybeNone = None
    resolved_bounds: tuple[ResolvedBound, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """Makes an attribute that an answer's reader left for later."""
        late = self.__dict__.get("_late")
        if late is None or name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = self.__dict__[name] = late(name)
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Returns all attributes, for copies and pickles."""
        return {name: getattr(self, name) for name in _FIELDS}

    def __repr__(self) -> str:
        """Returns a short summary: shapes, loss, kept share, drift, rules, warnings."""
        return summarize(self)


# A default of the class would hide what is made late.
delattr(Result, "sums")
_FIELDS = frozenset(each.name for each in fields(Result))
