"""The policy loss as a node of torch's autograd.

    from counterweight_rl.torch import policy_loss

    loss = policy_loss(
        client,
        current_log_probs=log_probs,  # [B, T], requires grad
        old_log_probs=old,
        rollout_log_probs=mu,
        response_mask=mask,
        advantages=advantages,  # [B, T], [B] or [B, 1]
        method=cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0}),
    )
    loss.backward()

The service computes loss and gradient in one call, in the forward pass; backward multiplies this
gradient by the upstream one. Gradient accumulation (``loss / steps``), loss scaling and sums with
other losses therefore work as with any loss. There is no second derivative: requesting one is a
RuntimeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from counterweight_rl.arrays.nested import flatten
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.client import Client
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Progress
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.result import Result

__all__ = ["policy_loss", "policy_loss_with_result"]


def policy_loss(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor,
    method: Method,
    rollout_log_probs: torch.Tensor | None = None,
    old_log_probs: torch.Tensor | None = None,
    ref_log_probs: torch.Tensor | None = None,
    sequence_lengths: Iterable[int] | None = None,
    padded_length: int | None = None,
    run: str | None = None,
    replica: str | None = None,
    policy_version: int | None = None,
    request_id: str | None = None,
    non_finite: NonFinitePolicy | str = NonFinitePolicy.REJECT,
    seed: int | None = None,
    global_counts: GlobalCounts | None = None,
    group_ids: Iterable[int] | None = None,
    row_divisors: Iterable[float] | None = None,
    policy_versions: torch.Tensor | None = None,
    version_spans: Iterable[Any] | None = None,
    metrics: bool = True,
    out: Mapping[str, torch.Tensor] | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> torch.Tensor:
    """Returns the method's policy loss, whose backward is the service's gradient.

    Args:
        client: The client to ask.
        current_log_probs: log pi_theta at this gradient step, nats; padded [B, T] or, with
            ``sequence_lengths``, packed [N]; or nested; float32, bfloat16, float16 or float64 (sent
            as float32). The only input that gets a gradient.
        response_mask: [B, T] or [N], each 0 or 1; 1 = the token counts. Other positions get
            gradient 0, whatever they contain.
        advantages: [B, T] or [N]; or one per sequence, [B] or [B, 1] (packed: [B, 1] alone where B
            is N and a sequence is empty).
        method: A Dialect, or a CorrectionConfig or preset that has a policy loss.
        rollout_log_probs: log mu of the sampling policy; nats. The method determines whether it is
            needed.
        old_log_probs: log pi_old, the anchor of the step; nats. The method determines whether it is
            needed.
        ref_log_probs: log pi_ref, for a KL penalty; nats.
        sequence_lengths: Positions of each sequence, for packed arrays.
        padded_length: Padded width of a packed batch, read only where a peer's formula needs it.
            None: the longest sequence.
        run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
        replica: Data-parallel replica or worker, [A-Za-z0-9_.-]{1,64}; for the server's log.
        policy_version: Version of the policy being trained, >= 0; a gauge of the run in Prometheus.
            Required with versions of tokens.
        request_id: Identifier of this request, at most 128 bytes of printable ASCII. Drift metrics
            count each request_id once, so retry with the same one. None: the client makes one,
            which results and errors carry.
        non_finite: Policy for a NaN or infinity where response_mask is 1.
        seed: Seed of random choices (CLIP_COV). None: 0.
        global_counts: Counts over all data-parallel ranks, of the step; losses divide by
            them, so that the ranks' losses add up, and so do normalized weights.
        group_ids: Group (prompt) of each sequence, [B] integers. Losses that average within groups
            (skyrl's prompt_mean) need them; other methods refuse them.
        row_divisors: Divisor of each sequence's sum, [B] numbers > 0, instead of its number of
            tokens, in losses aggregated by SEQ_MEAN_TOKEN_MEAN; other methods refuse them.
        policy_versions: Version of the policy that sampled each token, integers of the shape of
            response_mask (int32 is read in place), from 0 to ``policy_version``; -1 = unknown. The
            result then has ``staleness``.
        version_spans: The same as (sequence, start, end, policy_version) for positions [start, end)
            of a sequence, ascending, without overlap; other positions are unknown. Instead of
            policy_versions. Or for each row the weight_versions of vLLM or SGLang; see
            ``counterweight_rl.spans_of``.
        metrics: False leaves ``metrics`` and ``rules`` of the result empty and publishes no drift
            of this batch; arrays, loss and errors are the same and arrive sooner. Use it for
            batches whose drift is already known, such as later epochs over the same rollouts.
        out: Destination arrays by output name: of the kind, shape, dtype and device that the output
            has in Result, contiguous and writable. They become the Result's arrays; after an error
            their content is undefined. ``out`` does not select outputs.
        progress: Called with (bytes sent, total bytes) of the tensors: with 0 before the first
            byte, with the total when the answer has come, and from 0 again for another attempt.
            Streams also call it after every chunk, from another thread (asyncio: in the event
            loop), never concurrently. An exception that it raises cancels the call and is raised by
            it.
        timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

    Returns:
        A scalar on the device of current_log_probs; float32, or float64 if they are. Its gradient
        has the dtype of current_log_probs.

    Raises:
        InvalidRequestError: The method has no policy loss, or another reason of ``Client.correct``,
            whose other errors occur too.
    """
    result = client.correct(
        current_log_probs=current_log_probs,
        response_mask=response_mask,
        advantages=advantages,
        method=method,
        rollout_log_probs=rollout_log_probs,
        old_log_probs=old_log_probs,
        ref_log_probs=ref_log_probs,
        outputs=outputs_for(current_log_probs),
        sequence_lengths=sequence_lengths,
        padded_length=padded_length,
        run=run,
        replica=replica,
        policy_version=policy_version,
        request_id=request_id,
        non_finite=non_finite,
        seed=seed,
        global_counts=global_counts,
        group_ids=group_ids,
        row_divisors=row_divisors,
        policy_versions=policy_versions,
        version_spans=version_spans,
        metrics=metrics,
        out=out,
        progress=progress,
        timeout=timeout,
    )
    return attach(current_log_probs, result)


def policy_loss_with_result(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor,
    method: Method,
    rollout_log_probs: torch.Tensor | None = None,
    old_log_probs: torch.Tensor | None = None,
    ref_log_probs: torch.Tensor | None = None,
    sequence_lengths: Iterable[int] | None = None,
    padded_length: int | None = None,
    run: str | None = None,
    replica: str | None = None,
    policy_version: int | None = None,
    request_id: str | None = None,
    non_finite: NonFinitePolicy | str = NonFinitePolicy.REJECT,
    seed: int | None = None,
    global_counts: GlobalCounts | None = None,
    group_ids: Iterable[int] | None = None,
    row_divisors: Iterable[float] | None = None,
    policy_versions: torch.Tensor | None = None,
    version_spans: Iterable[Any] | None = None,
    metrics: bool = True,
    out: Mapping[str, torch.Tensor] | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> tuple[torch.Tensor, Result[torch.Tensor]]:
    """Returns the loss of ``policy_loss``, and the Result with metrics, weights and keep mask.

    Arguments and errors are those of ``policy_loss``.

    Returns:
        The loss, and the Result of ``Client.correct`` with its default outputs.
    """
    result = client.correct(
        current_log_probs=current_log_probs,
        response_mask=response_mask,
        advantages=advantages,
        method=method,
        rollout_log_probs=rollout_log_probs,
        old_log_probs=old_log_probs,
        ref_log_probs=ref_log_probs,
        outputs=None,
        sequence_lengths=sequence_lengths,
        padded_length=padded_length,
        run=run,
        replica=replica,
        policy_version=policy_version,
        request_id=request_id,
        non_finite=non_finite,
        seed=seed,
        global_counts=global_counts,
        group_ids=group_ids,
        row_divisors=row_divisors,
        policy_versions=policy_versions,
        version_spans=version_spans,
        metrics=metrics,
        out=out,
        progress=progress,
        timeout=timeout,
    )
    return attach(current_log_probs, result), result


def outputs_for(current_log_probs: torch.Tensor) -> tuple[str, ...]:
    """Returns the outputs that a loss needs: no gradient if autograd would discard it."""
    wants_gradient = torch.is_grad_enabled() and current_log_probs.requires_grad
    return ("loss", "gradient") if wants_gradient else ("loss",)


def attach(current_log_probs: torch.Tensor, result: Result[torch.Tensor]) -> torch.Tensor:
    """Returns the answer's loss as a function of the log-probs.

    Raises:
        InvalidRequestError: The answer has no loss.
    """
    if result.loss is None:
        raise refuse([Violation("method", "has no policy loss")], result.request_id)
    gradient = result.gradient
    if current_log_probs.is_nested:
        # Autograd's gradient of a nested tensor must have its very layout; that of the packed
        # elements needs none.
        current_log_probs, _ = flatten("current_log_probs", current_log_probs)
        if gradient is not None:
            gradient, _ = flatten("gradient", gradient)
    loss: torch.Tensor = _PolicyLoss.apply(current_log_probs, result.loss, gradient)
    return loss


class _PolicyLoss(torch.autograd.Function):
    """A number with a precomputed gradient."""

    @staticmethod
    def forward(
        ctx: Any, current_log_probs: torch.Tensor, loss: float, gradient: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = current_log_probs.dtype
        dtype = torch.promote_types(current_log_probs.dtype, torch.float32)
        return torch.tensor(loss, dtype=dtype, device=current_log_probs.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        # Multiplies in float32: a loss scale beyond float16 would overflow before the
        # multiplication.
        return (upstream * gradient).to(ctx.dtype), None, None
