"""The defaults of a peer's release: what its own configuration objects hold, as a dialect's block.

`COUNTERWEIGHT_PEER=trl==1.9.1 python defaults.py` prints them for tests/golden/defaults.json.
"""

from __future__ import annotations

import enum
import inspect
import json
import pathlib
import tempfile
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import cut
import releases
import written_defaults


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


def of_slime() -> Any:
    """The command line's, as its validation leaves them."""
    return _of_command_line("slime/utils/arguments.py")


def of_miles() -> Any:
    return _of_command_line("miles/utils/arguments.py")


def of_nemo_rl() -> Any:
    from nemo_rl.algorithms.loss.loss_functions import ClippedPGLossConfig

    return ClippedPGLossConfig()


def of_prime_rl() -> Any:
    from prime_rl.configs.trainer import DefaultLossConfig

    return DefaultLossConfig()


def of_areal() -> Any:
    names = ("ProxLogpMethod", "PROX_LOGP_METHOD_RECOMPUTE")
    made = cut.definitions("constants", {"areal/utils/constants.py": names}, Enum=enum.Enum)
    found = written_defaults.of_class("areal/api/cli_args.py", "PPOActorConfig", vars(made))
    return SimpleNamespace(**found)


def of_roll() -> Any:
    from test_roll_correction import original

    found = written_defaults.of_class("roll/configs/base_config.py", "PPOConfig")
    found |= written_defaults.of_class("roll/pipeline/rlvr/rlvr_config.py", "RLVRConfig")
    return SimpleNamespace(**found, train_infer_correction=original.TrainInferCorrectionConfig())


def _of_command_line(path: str) -> Any:
    found = SimpleNamespace(**written_defaults.of_parser(path))
    if found.eps_clip_high is None:
        found.eps_clip_high = found.eps_clip
    return found


def block() -> dict[str, Any]:
    """Returns the block of the release or checkout that this process has activated."""
    from counterweight_rl import dialect_blocks

    found = {
        **{"openrlhf": of_openrlhf, "skyrl": of_skyrl, "trl": of_trl, "verl": of_verl},
        **{"slime": of_slime, "miles": of_miles, "nemo_rl": of_nemo_rl, "roll": of_roll},
        **{"prime_rl": of_prime_rl, "areal": of_areal},
    }
    plain = dialect_blocks.to_mapping(releases.PEER, found[releases.PEER]())
    return dict(json.loads(json.dumps(plain, default=_plain)))


def merged(defaults: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults with other fields in their place, also in structs."""
    both = dict(defaults)
    for name, value in said.items():
        old = both.get(name)
        both[name] = merged(old, value) if isinstance(old, dict) else value
    return both


def answer(said: Mapping[str, Any], *, own: Any = None, **arguments: Any) -> Any:
    """Returns the client's answer to a block of these fields alone.

    The system's default object with the same fields has the same answer to the bit.

    Args:
        said: The fields, facts of the call among them.
        own: The default object; None: that of ``block``.
        arguments: Of ``Client.correct``.
    """
    import counterweight_rl as cw
    import torch
    from counterweight_rl import dialect_blocks
    from counterweight_rl.compat import client

    whole_block = block() if own is None else dialect_blocks.to_mapping(releases.PEER, own)

    alone, whole = (
        client().correct(
            method=cw.Dialect(releases.PEER, fields, release=releases.RELEASE),
            outputs=["gradient"],
            **arguments,
        )
        for fields in (said, merged(whole_block, said))
    )
    for result in (alone, whole):
        assert not [one for one in result.warnings if "releases of" in one]
    torch.testing.assert_close(alone.loss, whole.loss, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(alone.gradient, whole.gradient)
    assert alone.metrics.keys() == whole.metrics.keys()
    for name, value in alone.metrics.items():
        assert value == whole.metrics[name] or value != value, name
    return alone


def _plain(value: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else list(value)


if __name__ == "__main__":
    releases.activate_release()
    print(json.dumps(block(), sort_keys=True))
