"""The defaults of a peer's release: what its own configuration objects hold, as a dialect's block.

`COUNTERWEIGHT_PEER=trl==1.9.1 python defaults.py` prints them for tests/golden/defaults.json.
"""

from __future__ import annotations

import inspect
import json
import pathlib
import tempfile
from typing import Any

import releases


def of_trl(**settings: Any) -> Any:
    from trl import GRPOConfig

    # Without a folder, or with the default bf16 on a CPU, it refuses to be made.
    return GRPOConfig(output_dir=tempfile.gettempdir(), use_cpu=True, bf16=False, **settings)


def of_skyrl() -> Any:
    from skyrl.train.config.config import AlgorithmConfig

    return AlgorithmConfig()


def of_openrlhf() -> Any:
    """The constructor's, since OpenRLHF has no object; the command line has the same."""
    from openrlhf.models.loss import PolicyLoss

    parameters = inspect.signature(PolicyLoss).parameters.values()
    fields = {parameter.name: parameter.default for parameter in parameters}
    clip = [fields.pop("clip_eps_low"), fields.pop("clip_eps_high")]
    return {"eps_clip_low_high": clip, **fields}


def of_verl() -> Any:
    """The tree that verl's command line starts from."""
    import verl
    from omegaconf import OmegaConf

    folder = pathlib.Path(str(verl.__file__)).parent / "trainer/config"
    tree = OmegaConf.load(folder / "_generated_ppo_trainer.yaml")
    return {
        "algorithm": {"rollout_correction": tree.algorithm.rollout_correction},
        "actor_rollout_ref": {"actor": tree.actor_rollout_ref.actor},
    }


def block() -> dict[str, Any]:
    """Returns the block of the release that this process has activated."""
    from counterweight_rl import dialect_blocks

    found = {"openrlhf": of_openrlhf, "skyrl": of_skyrl, "trl": of_trl, "verl": of_verl}
    plain = dialect_blocks.to_mapping(releases.PEER, found[releases.PEER]())
    return dict(json.loads(json.dumps(plain, default=_plain)))


def _plain(value: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else list(value)


if __name__ == "__main__":
    releases.activate_release()
    print(json.dumps(block(), sort_keys=True))
