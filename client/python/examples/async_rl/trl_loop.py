"""The same loop with TRL's own trainer: one line takes the correction up.

    python client/python/examples/async_rl/trl_loop.py --method token_tis
    python client/python/examples/async_rl/trl_loop.py --method none

Needs torch, transformers, datasets and TRL 1.10 or newer. TRL calls the sampler in its own process,
so the lag is a queue of old weights here. The correction is computed in process unless
COUNTERWEIGHT_TARGET names a server.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections import deque
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("COUNTERWEIGHT_TARGET", "local:")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import model as models
import task
import torch
import transformers
import trl
from datasets import Dataset
from sampler import prepare_process
from settings import Settings
from start import pretrain
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from counterweight_rl.hooks.trl import CorrectionMixin

_PAD = "<pad>"


class Sampler:
    """Answers from an int4 copy of the model as it was some steps ago, in the place of vLLM."""

    def __init__(self, model: Any, lag: int, seed: int) -> None:
        self._model = transformers.AutoModelForCausalLM.from_config(model.config)
        self._old: deque[models.Arrays] = deque(maxlen=lag + 1)
        torch.manual_seed(seed)

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        self._old.append(models.to_arrays(trainer.model.state_dict()))
        weights = models.quantize(self._old[0], within="model.layers")
        self._model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})
        found: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        for prompt in dict.fromkeys(prompts):
            copies = prompts.count(prompt)
            asked = torch.tensor([task.encode(prompt)] * copies)
            answered = self._model.generate(
                asked,
                attention_mask=torch.ones_like(asked),
                do_sample=True,
                top_k=0,
                max_new_tokens=task.LONGEST_ANSWER,
                eos_token_id=task.END,
                pad_token_id=len(task.CHARACTERS),
                output_logits=True,
                return_dict_in_generate=True,
            )
            logs = torch.stack(answered.logits, dim=1).log_softmax(dim=-1)
            for row, log in zip(
                answered.sequences[:, asked.shape[1] :].tolist(), logs, strict=True
            ):
                length = row.index(task.END) + 1 if task.END in row else len(row)
                found["prompt_ids"].append(task.encode(prompt))
                found["completion_ids"].append(row[:length])
                found["logprobs"].append(log[torch.arange(length), row[:length]].tolist())
        return found


def reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
    known = range(len(task.CHARACTERS))
    return [
        task.reward(
            [int(term) for term in prompt[:-1].split("+")],
            task.decode([token for token in ids if token in known]),
        )
        for prompt, ids in zip(prompts, completion_ids, strict=True)
    ]


def tokenizer() -> Any:
    words = {word: number for number, word in enumerate((*task.CHARACTERS, _PAD))}
    made = Tokenizer(WordLevel(words, unk_token=_PAD))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=_PAD, eos_token=task.CHARACTERS[task.END]
    )


def new_model() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(task.CHARACTERS) + 1,
        hidden_size=models.WIDTH,
        intermediate_size=4 * models.WIDTH,
        num_hidden_layers=models.LAYERS,
        num_attention_heads=models.HEADS,
        num_key_value_heads=models.HEADS,
        pad_token_id=len(task.CHARACTERS),
        eos_token_id=task.END,
        bos_token_id=task.END,
        initializer_range=0.1,
    )
    return transformers.Qwen2ForCausalLM(config)


def train(method: str, settings: Settings, seed: int) -> list[dict[str, Any]]:
    """Imitates, then trains with TRL; returns TRL's log."""

    class Trainer(CorrectionMixin, trl.GRPOTrainer):
        counterweight_method = method

    trainer_class = trl.GRPOTrainer if method == "none" else Trainer
    model = pretrain(
        settings.start_updates,
        lambda _: None,
        new_model(),
        lambda model, tokens: models.log_probs(lambda ids: model(input_ids=ids).logits, tokens),
    )
    source = random.Random(1000 + seed)
    rows = settings.steps * settings.prompts
    prompts = [task.prompt(task.numbers(source)) for _ in range(rows)]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=settings.prompts * settings.group,
            num_generations=settings.group,
            max_completion_length=task.LONGEST_ANSWER,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="constant",
            # The mixin's ratio takes the place of TRL's own; a plain run has neither.
            vllm_importance_sampling_correction=method != "none",
            model_init_kwargs={"dtype": "float32"},
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            seed=seed,
        )
        trainer = trainer_class(
            model=folder,
            args=config,
            reward_funcs=reward,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer(),
            rollout_func=Sampler(model, settings.lag, seed),
        )
        # Set after creation, so that TRL starts no engine.
        trainer.use_vllm = True
        trainer._last_loaded_step = -1
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        trainer.train()
        return [entry for entry in trainer.state.log_history if "loss" in entry]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--method", default="token_tis", help='a preset, or "none"')
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--start-updates", type=int, default=Settings.start_updates)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    prepare_process()
    settings = Settings(steps=arguments.steps, start_updates=arguments.start_updates)
    log = train(arguments.method, settings, arguments.seed)
    for entry in log:
        drift = entry.get("counterweight/k3")
        shown = "" if drift is None else f"  k3 {drift:.4f} nats"
        print(f"step {entry['step']:3}  solved by the sampler {entry['reward']:.2f}{shown}")


if __name__ == "__main__":
    main()
