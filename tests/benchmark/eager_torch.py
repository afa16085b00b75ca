"""The work token_tis+3_rules of kernels_bench in eager torch: the formulas of verl's rollout
correction (token weights, three rejection rules, all metrics) in verl's own style, one tensor
operation after another on a padded batch.

Prints JSON: nanoseconds of CPU time per token on one thread, the least of several repetitions.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from headline import MAX_K3, MEAN_BOUNDS, TOKEN_BOUNDS, UPPER
from torch import Tensor

CLAMP = 20.0
REPETITIONS = 5

Metrics = dict[str, float]

# Converts each metric's tensor. gpu_torch.py leaves them on the device.
number: Callable[[Tensor], float] = float


# Selections in verl's style. Their shapes depend on the data, which torch.compile cannot follow;
# compiled_torch.py replaces them by others that give the same result if each row has a token.
def largest(x: Tensor, valid: Tensor) -> Tensor:
    return x[valid].max()


def smallest(x: Tensor, valid: Tensor) -> Tensor:
    return x[valid].min()


def rows_with_tokens(x: Tensor, valid: Tensor) -> Tensor:
    return x[valid.any(-1)]


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    return (torch.where(mask != 0, x, 0.0) * mask).sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    return masked_sum(x, mask, dim) / (mask.sum(dim) + 1e-8)


def masked_std(x: Tensor, mask: Tensor) -> float:
    mean = masked_mean(x, mask)
    return number((masked_mean(x * x, mask) - mean * mean).clamp(min=0).sqrt())


def row_std(x: Tensor) -> float:
    return number(x.std()) if x.numel() > 1 else 0.0


def correct(old: Tensor, rollout: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Metrics]:
    """Returns weights, keep mask and metrics of float32 tensors [B, T]."""
    log_ratio = old - rollout
    weights, metrics = importance_weights(log_ratio, mask)
    keep, rule_metrics = reject(log_ratio, mask)
    metrics.update(rule_metrics)
    metrics.update(off_policy(old, rollout, mask))
    return weights, keep, {f"rollout_corr/{name}": value for name, value in metrics.items()}


def importance_weights(log_ratio: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
    raw = torch.exp(log_ratio.clamp(-CLAMP, CLAMP)) * mask
    weights = raw.clamp(max=UPPER)
    return weights, weight_metrics(weights, raw, mask)


def weight_metrics(weights: Tensor, raw: Tensor, mask: Tensor) -> Metrics:
    valid = mask.bool()
    clamped = weights.clamp(0, UPPER)
    relative = clamped / (masked_mean(clamped, mask) + 1e-8)
    rows = masked_mean(weights, mask, -1)
    raw_rows = masked_mean(raw, mask, -1)
    return {
        "rollout_is_mean": number(masked_mean(weights, mask)),
        "rollout_is_max": number(largest(weights, valid)),
        "rollout_is_min": number(smallest(weights, valid)),
        "rollout_is_ratio_fraction_high": number(masked_mean((raw > UPPER).float(), mask)),
        "rollout_is_ratio_fraction_low": number(masked_mean((raw < 1 / UPPER).float(), mask)),
        "rollout_is_std": masked_std(clamped, mask),
        "rollout_is_eff_sample_size": 1 / number(masked_mean(relative * relative, mask)),
        "rollout_is_seq_mean": number(rows.mean()),
        "rollout_is_seq_std": row_std(rows),
        "rollout_is_seq_max": number(rows.max()),
        "rollout_is_seq_min": number(rows.min()),
        "rollout_is_seq_max_deviation": number((rows - 1).abs().max()),
        "rollout_is_seq_fraction_high": number((raw_rows > UPPER).float().mean()),
        "rollout_is_seq_fraction_low": number((raw_rows < 1 / UPPER).float().mean()),
    }


@dataclass(frozen=True)
class Rule:
    name: str
    # A statistic of the clamped log ratio: [B, T], or [B, 1] for a decision about sequences.
    statistic: Callable[[Tensor, Tensor], Tensor]
    lower: float
    upper: float


def k3(clamped: Tensor) -> Tensor:
    return torch.exp(clamped) - 1 - clamped


RULES = (
    Rule("token_k1", lambda c, m: -c, math.log(TOKEN_BOUNDS[0]), math.log(TOKEN_BOUNDS[1])),
    Rule(
        "seq_mean_k1",
        lambda c, m: masked_mean(-c, m, -1).unsqueeze(-1),
        math.log(MEAN_BOUNDS[0]),
        math.log(MEAN_BOUNDS[1]),
    ),
    Rule(
        "seq_max_k3",
        lambda c, m: torch.where(m != 0, k3(c), -torch.inf).amax(-1, keepdim=True),
        0.0,
        MAX_K3,
    ),
)


def reject(log_ratio: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
    clamped = log_ratio.clamp(-CLAMP, CLAMP)
    metrics: Metrics = {}
    keep_all = torch.ones_like(mask)
    for rule in RULES:
        statistic = rule.statistic(clamped, mask)
        by_row = statistic.size(-1) == 1 and mask.size(-1) != 1
        per_token = statistic.expand_as(mask)
        keep = (per_token <= rule.upper).float()
        if rule.name.endswith("k1"):
            keep = keep * (per_token >= rule.lower).float()
        keep_all = keep_all * keep
        metrics.update(rule_metrics(rule, per_token, by_row, keep, mask))
    keep_mask = mask * keep_all
    dropped = 1 - keep_all
    metrics["rollout_rs_masked_fraction"] = number(masked_mean(dropped, mask))
    touched = ((dropped * mask).sum(-1) > 0).float()
    metrics["rollout_rs_seq_masked_fraction"] = number(touched.mean())
    return keep_mask, metrics


def rule_metrics(rule: Rule, x: Tensor, by_row: bool, keep: Tensor, mask: Tensor) -> Metrics:
    two_sided = rule.name.endswith("k1")
    valid = mask.bool()
    rows = rows_with_tokens(masked_mean(x, mask, -1), valid)
    high, low = x > rule.upper, x < rule.lower
    row_high, row_low = (rows > rule.upper).float().mean(), (rows < rule.lower).float().mean()
    touched = rows_with_tokens(((1 - keep) * mask).sum(-1) > 0, valid)
    found = {
        "mean": number(masked_mean(x, mask)),
        "max": number(rows.max() if by_row else largest(x, valid)),
        "min": number(rows.min() if by_row else smallest(x, valid)),
        "fraction_high": number(row_high if by_row else masked_mean(high.float(), mask)),
        "fraction_low": 0.0,
        "std": masked_std(x.clamp(rule.lower, rule.upper), mask),
        "seq_mean": number(rows.mean()),
        "seq_std": row_std(rows),
        "seq_max": number(rows.max()),
        "seq_min": number(rows.min()),
        "seq_max_deviation": number(rows.abs().max()),
        "seq_fraction_high": number(row_high),
        "masked_fraction": number(masked_mean(1 - keep, mask)),
        "seq_masked_fraction": number(touched.float().mean()),
    }
    if two_sided:
        found["fraction_low"] = number(row_low if by_row else masked_mean(low.float(), mask))
        found["seq_fraction_low"] = number(row_low)
    return {f"rollout_rs_{rule.name}_{name}": value for name, value in found.items()}


def off_policy(old: Tensor, rollout: Tensor, mask: Tensor) -> Metrics:
    log_ratio = old - rollout
    old_rows, rollout_rows = masked_mean(old, mask, -1), masked_mean(rollout, mask, -1)
    difference = rollout_rows - old_rows
    ratio = torch.exp(log_ratio.clamp(-CLAMP, CLAMP))
    product = torch.exp(masked_sum(log_ratio, mask, -1).clamp(-CLAMP, CLAMP))
    return {
        "training_ppl": number(torch.exp(-old_rows).mean()),
        "training_log_ppl": number((-old_rows).mean()),
        "kl": number(masked_mean(rollout - old, mask)),
        "k3_kl": number(masked_mean(torch.exp(log_ratio) - log_ratio - 1, mask)),
        "rollout_ppl": number(torch.exp(-rollout_rows).mean()),
        "rollout_log_ppl": number((-rollout_rows).mean()),
        "log_ppl_diff": number(difference.mean()),
        "log_ppl_abs_diff": number(difference.abs().mean()),
        "log_ppl_diff_max": number(difference.max()),
        "log_ppl_diff_min": number(difference.min()),
        "ppl_ratio": number(torch.exp(difference).mean()),
        "chi2_token": number(masked_mean(ratio.square(), mask)) - 1,
        "chi2_seq": number(product.square().mean()) - 1,
    }


def random_batch(num_tokens: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """old, rollout, mask: as kernels_bench makes them; the mask in the dtype that is fastest here."""
    torch.manual_seed(1)
    shape = (num_tokens // length, length)
    rollout = torch.empty(shape).exponential_().neg_()
    old = rollout + 0.1 * torch.randn(shape)
    return old, rollout, (torch.rand(shape) < 0.9).float()


def time_shape(
    num_tokens: int, length: int, threads: int, work: Callable[..., object] = correct
) -> dict[str, float]:
    torch.set_num_threads(threads)
    batch = random_batch(num_tokens, length)
    cpu, wall = [], []
    work(*batch)
    for _ in range(REPETITIONS):
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        work(*batch)
        cpu.append(time.process_time() - cpu_start)
        wall.append(time.perf_counter() - wall_start)
    tokens = batch[0].numel()
    return {
        "tokens": num_tokens,
        "length": length,
        "threads": threads,
        "cpu_ns_per_token": 1e9 * min(cpu) / tokens,
        "wall_ns_per_token": 1e9 * min(wall) / tokens,
    }


def main() -> None:
    rows = [time_shape(1_000_000, length, 1) for length in (100, 1_024, 10_000, 100_000, 1_000_000)]
    for threads in sorted({1, os.cpu_count() or 1}):
        rows.append(time_shape(1 << 23, 1_024, threads))
    json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
