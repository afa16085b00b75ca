"""TRL's GRPOTrainer against the one with the service's loss: the same losses, metrics and weights.

Both train the same tiny model on the same batches. A sampler that is not quite the model stands in
for vLLM. `python tests/peers/test_trl_trainer.py` prints the differences as a table.
"""

from __future__ import annotations

import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

for package in ("torch", "transformers", "trl"):
    pytest.importorskip(package, reason="needs TRL")
if tuple(map(int, metadata.version("trl").split(".")[:2])) < (1, 10):
    pytest.skip("GRPOMixin has the loss of TRL 1.10 and newer", allow_module_level=True)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import counterweight_rl as cw  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from counterweight_rl import compat, dialect_blocks  # noqa: E402
from counterweight_rl.compat.trl import GRPOTrainer  # noqa: E402
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parents[1] / "e2e"))
from server_process import ServerProcess  # noqa: E402

pytestmark = pytest.mark.compares("GRPOTrainer._compute_loss")

STEPS = 8
WORDS = 32
PAD, END = 0, 1
GROUP = 4
# Deviation of the sampler's log-probs from the model's, nats.
SAMPLER_NOISE = 0.15

TWO_BY_TWO = {"num_iterations": 2, "gradient_accumulation_steps": 2}
# Far enough from the old policy for every clip to bind.
TIGHT = {"epsilon": 0.02, **TWO_BY_TWO}
TOKEN_TRUNCATE = {"vllm_importance_sampling_mode": "token_truncate"}
TOKEN_MASK = {
    "vllm_importance_sampling_mode": "token_mask",
    "vllm_importance_sampling_clip_min": 0.8,
    "vllm_importance_sampling_clip_max": 1.25,
}
SEQUENCE = {"importance_sampling_level": "sequence"}

CONFIGS: dict[str, dict[str, Any]] = {
    "dapo, sequence_mask (defaults)": {},
    "dapo, 2 iterations x 2 accumulation": TIGHT,
    "dapo, OPSM, token_mask": {"off_policy_mask_threshold": 0.01, **TOKEN_MASK, **TIGHT},
    "dapo, 4 steps per generation, 2 accumulation": {
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,
    },
    "grpo, token_truncate, beta": {"loss_type": "grpo", "beta": 0.04, **TOKEN_TRUNCATE, **TIGHT},
    "grpo, beta, no bias correction": {
        "loss_type": "grpo",
        "beta": 0.04,
        "use_bias_correction_kl": False,
        **TIGHT,
    },
    "gspo": {"loss_type": "grpo", **SEQUENCE, **TIGHT},
    "gspo, beta, sequence_truncate": {
        "loss_type": "grpo",
        "beta": 0.04,
        "vllm_importance_sampling_mode": "sequence_truncate",
        **SEQUENCE,
        **TIGHT,
    },
    "bnpo": {"loss_type": "bnpo", **TIGHT},
    "dr_grpo, delta": {"loss_type": "dr_grpo", "delta": 1.03, **TIGHT},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.02, **TWO_BY_TWO},
    "sapo, beta": {"loss_type": "sapo", "beta": 0.04, **TWO_BY_TWO},
    "vespo": {"loss_type": "vespo", **TOKEN_TRUNCATE, **TWO_BY_TWO},
    "luspo, level token": {"loss_type": "luspo", **TIGHT},
    "luspo, level sequence": {"loss_type": "luspo", **SEQUENCE, **TIGHT},
    "luspo, level sequence, beta": {"loss_type": "luspo", "beta": 0.04, **SEQUENCE, **TIGHT},
    "dapo, high entropy": {"top_entropy_quantile": 0.5, **TIGHT},
    "gspo, high entropy, beta": {
        "loss_type": "grpo",
        "top_entropy_quantile": 0.5,
        "beta": 0.04,
        **SEQUENCE,
        **TIGHT,
    },
    "grpo, entropy bonus": {"loss_type": "grpo", "entropy_coef": 0.01, **TWO_BY_TWO},
    "dapo, entropy bonus": {"entropy_coef": 0.01, **TWO_BY_TWO},
    "dapo, no sampler's log-probs": {"use_vllm": False, **TIGHT},
    "dapo, correction off, OPSM": {
        "vllm_importance_sampling_correction": False,
        "off_policy_mask_threshold": 0.01,
        **TIGHT,
    },
    "dapo, nothing but the policy": {"use_vllm": False},
}
# clip_ratio/* counts tokens of low entropy there.
OTHER_METRICS = {"dapo, high entropy", "gspo, high entropy, beta"}


def tokenizer() -> Any:
    vocabulary = {"<pad>": PAD, "</s>": END, **{f"w{i}": i for i in range(2, WORDS)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>"
    )


def model() -> Any:
    torch.manual_seed(7)
    config = transformers.Qwen2Config(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=END,
        initializer_range=0.3,
    )
    return transformers.Qwen2ForCausalLM(config)


class Sampler:
    """Completions of 3 to 9 tokens at random; a tool wrote some of the tokens."""

    def __init__(self, missing: bool) -> None:
        self.missing = missing

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        random = torch.Generator().manual_seed(1000 + trainer._step)
        prompt_ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        completions, log_probs, from_model = [], [], []
        for prompt in prompt_ids:
            length = int(torch.randint(2, 9, (), generator=random))
            completion = [*torch.randint(2, WORDS, (length,), generator=random).tolist(), END]
            log_prob = self.log_probs(trainer.model, prompt, completion)
            noise = SAMPLER_NOISE * torch.randn(length + 1, generator=random)
            sampled = (log_prob + noise).tolist()
            if self.missing:
                sampled[length // 2] = None
            completions.append(completion)
            log_probs.append(sampled)
            from_model.append([1] * (length - 1) + [0, 1])
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completions,
            "logprobs": log_probs,
            "env_mask": from_model,
        }

    @torch.no_grad()
    def log_probs(self, model: Any, prompt: list[int], completion: list[int]) -> Any:
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0]
        after = logits[len(prompt) - 1 : -1].float().log_softmax(dim=-1)
        return after.gather(1, torch.tensor(completion).unsqueeze(1)).squeeze(1)


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(ids) % 7 / 7 for ids in completion_ids]


class Run:
    """Results of a training.

    Attributes:
        losses: Loss of each micro-batch.
        logs: TRL's metrics of each step.
        weights: The model's, at the end.
        evaluation: TRL's metrics of an evaluation at the end.
    """

    def __init__(self, trainer_class: Any, options: dict[str, Any], missing: bool = False) -> None:
        self.losses: list[float] = []
        options = dict(options)
        use_vllm = options.pop("use_vllm", True)
        with tempfile.TemporaryDirectory() as folder:
            # Passes the path, from which TRL makes the reference policy too.
            model().save_pretrained(folder)
            trainer = trainer_class(
                model=folder,
                args=config(folder, options),
                reward_funcs=reward,
                train_dataset=Dataset.from_dict(
                    {"prompt": [f"w{i} w{i + 1}" for i in range(2, 30)]}
                ),
                eval_dataset=Dataset.from_dict({"prompt": ["w3 w4", "w5 w6"]}),
                processing_class=tokenizer(),
                rollout_func=Sampler(missing),
            )
            trainer.remove_callback(transformers.PrinterCallback)
            # Set after creation, so that it starts no engine.
            trainer.use_vllm = use_vllm
            trainer._last_loaded_step = -1
            trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
            compute_loss = trainer._compute_loss

            def recorded(*arguments: Any) -> Any:
                loss = compute_loss(*arguments)
                self.losses.append(loss.item())
                return loss

            trainer._compute_loss = recorded
            trainer.train()
            self.evaluation = trainer.evaluate()
        self.logs = [entry for entry in trainer.state.log_history if "loss" in entry]
        parameters = trainer.model.parameters()
        self.weights = torch.cat([parameter.detach().flatten() for parameter in parameters])


def config(folder: str, options: dict[str, Any]) -> Any:
    return trl.GRPOConfig(
        **{
            "output_dir": folder,
            "per_device_train_batch_size": GROUP,
            "per_device_eval_batch_size": GROUP,
            "num_generations": GROUP,
            "max_completion_length": 12,
            "max_steps": STEPS,
            "model_init_kwargs": {"dtype": "float32"},
            "learning_rate": 0.05,
            # Adam makes steps of one size from gradients that are rounding errors.
            "optim": "sgd",
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "seed": 3,
            **options,
        }
    )


def relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-3)


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[None]:
    server = ServerProcess()
    with cw.Client(server.address) as client:
        compat.use(client)
        yield
        compat.use(None)
    server.stop()


def assert_alike(plain: Run, ours: Run, without: tuple[str, ...] = ()) -> None:
    assert len(plain.losses) >= STEPS
    assert len(plain.losses) == len(ours.losses)
    # Gains and losses of tokens cancel out; the remainder has the rounding of the terms.
    size = max(map(abs, plain.losses))
    assert size > 0.1
    # The first micro-batch starts from the same weights; later rounding has its cause in training
    # too.
    assert ours.losses[0] == pytest.approx(plain.losses[0], rel=1e-6, abs=1e-6 * size)
    assert ours.losses == pytest.approx(plain.losses, rel=0, abs=1e-5 * size)
    torch.testing.assert_close(ours.weights, plain.weights, rtol=1e-4, atol=1e-6)
    for expected, got in zip(
        [*plain.logs, plain.evaluation], [*ours.logs, ours.evaluation], strict=True
    ):
        assert set(got) == set(expected)
        for name, value in expected.items():
            if name.endswith(without) or "time" in name or "per_second" in name:
                continue
            assert got[name] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), name


@pytest.mark.parametrize("name", CONFIGS)
def test_trainer(name: str) -> None:
    plain, ours = Run(trl.GRPOTrainer, CONFIGS[name]), Run(GRPOTrainer, CONFIGS[name])
    regions = ("low_mean", "low_min", "high_mean", "high_max", "region_mean")
    assert_alike(plain, ours, regions if name in OTHER_METRICS else ())


@pytest.mark.skipif(trl.__version__.startswith("1.10."), reason="TRL 1.10 cannot have NaN")
@pytest.mark.parametrize("options", [{}, TOKEN_MASK, {"loss_type": "vespo", **TOKEN_TRUNCATE}])
def test_log_probs_that_the_sampler_lacks(options: dict[str, Any]) -> None:
    both = [
        Run(trainer, {**options, **TIGHT}, missing=True)
        for trainer in (trl.GRPOTrainer, GRPOTrainer)
    ]
    assert_alike(*both)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"use_adaptive_entropy": True, "entropy_coef": 0.01}, "use_adaptive_entropy"),
        ({"delta": -1.0}, "method.block.delta"),
    ],
)
def test_what_is_refused_is_refused_at_once(options: dict[str, Any], field: str) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        Run(GRPOTrainer, options)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_a_whole_grpo_config_is_a_block(tmp_path: pathlib.Path) -> None:
    options = {"hub_token": "hf_secret", "loss_type": "grpo", "vllm_server_host": "inside"}
    whole = config(str(tmp_path), {**options, "use_vllm": True})
    block = dialect_blocks.to_mapping("trl", whole)
    assert block["loss_type"] == "grpo"
    assert "hf_secret" not in block.values()
    assert not {"vllm_server_host", "output_dir", "learning_rate"} & set(block)
    log_probs, ones = torch.zeros(2, 3), torch.ones(2, 3)
    result = compat.client().correct(
        method=cw.Dialect("trl", whole),
        rollout_log_probs=log_probs,
        old_log_probs=log_probs,
        current_log_probs=log_probs,
        advantages=ones,
        response_mask=ones,
    )
    assert result.loss == -1.0
    assert result.warnings == ()


def main() -> None:
    server = ServerProcess()
    compat.use(cw.Client(server.address))
    print(f"TRL {trl.__version__}, transformers {transformers.__version__}, {STEPS} steps")
    print(
        "| config | largest loss | first micro-batch, relative | all, absolute | weights, absolute |"
    )
    print("|---|---|---|---|---|")
    for name, options in CONFIGS.items():
        plain, ours = Run(trl.GRPOTrainer, options), Run(GRPOTrainer, options)
        first = relative(plain.losses[0], ours.losses[0])
        largest = max(abs(a - b) for a, b in zip(plain.losses, ours.losses, strict=True))
        weights = (plain.weights - ours.weights).abs().max().item()
        size = max(map(abs, plain.losses))
        assert math.isfinite(size)
        print(f"| {name} | {size:.3g} | {first:.0e} | {largest:.0e} | {weights:.0e} |", flush=True)
    server.stop()


if __name__ == "__main__":
    main()
