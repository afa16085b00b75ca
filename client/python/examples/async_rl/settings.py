"""The setting of the experiment, and the corrections that it compares."""

from __future__ import annotations

from dataclasses import dataclass

import counterweight_rl as cw


@dataclass(frozen=True)
class Settings:
    """The numbers of a run; the defaults are those of the picture."""

    steps: int = 120
    # Steps between the weights that sample and those that learn.
    lag: int = 8
    prompts: int = 8
    # Answers to a prompt.
    group: int = 8
    minibatches: int = 2
    learning_rate: float = 2e-4
    clip: float = 0.2
    # Steps between evaluations, and their prompts.
    evaluate_every: int = 5
    evaluation_prompts: int = 200
    # Updates of the imitation that RL starts from.
    start_updates: int = 1000
    # Seconds after which a process that hears nothing from the others gives up.
    patience: float = 300.0


# The same parts in seconds; the curves mean nothing.
QUICK = Settings(
    steps=6,
    lag=2,
    prompts=2,
    evaluate_every=3,
    evaluation_prompts=16,
    start_updates=40,
)


def loss_of(settings: Settings) -> cw.PolicyLoss:
    """PPO's clip, averaged over the tokens that were sampled, dropped ones included."""
    return cw.PolicyLoss(
        surrogate=cw.Surrogate.PPO_CLIP,
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.ORIGINAL,
        clip_low=settings.clip,
        clip_high=settings.clip,
    )


def methods(settings: Settings) -> dict[str, cw.CorrectionConfig | cw.Preset]:
    loss = loss_of(settings)
    return {
        "none": cw.CorrectionConfig(policy_loss=loss),
        "token TIS": cw.Preset("token_tis", upper=2.0, policy_loss=loss),
        "geometric mask": cw.Preset("geo_rs", keep_lower=0.95, keep_upper=1.05, policy_loss=loss),
        "IcePop": cw.Preset("icepop", lower=0.5, upper=2.0, policy_loss=loss),
    }
