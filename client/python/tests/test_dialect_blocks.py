"""Fields of a configuration that become a dialect's block."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from google.protobuf import json_format
from sample import BATCH

import counterweight_rl as cw
from counterweight_rl import dialect_blocks
from counterweight_rl.dialect_fields import OTHERS


@dataclass
class GRPOConfig:
    """Some of TRL's fields; reading one that the dialect does not know fails."""

    loss_type: str = "grpo"
    beta: float = 0.04
    epsilon_high: float | None = None
    num_items_in_batch: Any = field(default_factory=lambda: np.array(64))
    hub_token: str = "hf_secret"
    push_to_hub_token: str = "hf_other_secret"

    def __getattribute__(self, name: str) -> Any:
        assert not name.endswith("_token")
        return super().__getattribute__(name)


SENT = {"loss_type": "grpo", "beta": 0.04, "epsilon_high": None, "num_items_in_batch": 64}


def test_a_written_block_is_sent_as_it_is() -> None:
    block = {"loss_type": "grpo", "los_type": "typo", "sampling": {"any": [1]}}
    assert dialect_blocks.to_mapping("trl", block) == block
    assert dialect_blocks.to_mapping("a dialect that the client does not know", block) == block


def test_of_an_object_only_known_fields_are_read() -> None:
    assert dialect_blocks.to_mapping("trl", GRPOConfig()) == SENT


def test_secrets_do_not_travel(server: FakeServer, client: cw.Client) -> None:
    client.correct(**{**BATCH, "method": cw.Dialect("trl", GRPOConfig())})
    (request,) = server.requests
    assert json_format.MessageToDict(request.method.dialect.block) == SENT
    assert b"secret" not in request.SerializeToString()


def test_an_object_may_have_its_fields_in_to_dict() -> None:
    class Slotted:
        __slots__ = ()

        def to_dict(self) -> dict[str, Any]:
            return {"beta": 0.5, "hub_token": "hf_secret"}

    assert dialect_blocks.to_mapping("trl", Slotted()) == {"beta": 0.5}


def test_structs_of_objects() -> None:
    config = SimpleNamespace(
        policy_loss_type="sapo",
        sapo=SimpleNamespace(tau_pos=2.0, tau_neg=None, note="unknown"),
        off_policy_correction={"tis_ratio_type": "token", "tis_ratio_typ": "typo"},
        kl_ctrl=SimpleNamespace(type="fixed"),  # known, but never read
        prompt_boundaries=[[0, 2], [2, 4]],
        logger="wandb",
    )
    assert dialect_blocks.to_mapping("skyrl", config) == {
        "policy_loss_type": "sapo",
        "sapo": {"tau_pos": 2.0, "tau_neg": None},
        "off_policy_correction": config.off_policy_correction,
        "prompt_boundaries": [[0, 2], [2, 4]],
    }
    assert dialect_blocks.to_mapping("skyrl", {"sapo": config.sapo, "other": 1}) == {
        "sapo": {"tau_pos": 2.0, "tau_neg": None},
        "other": 1,
    }


@dataclass
class Filter:
    """ROLL's TrainInferFilterConfig, with a field that the dialect does not know."""

    enabled: bool = False
    agg_type: str = "token"
    ratio_enabled: bool = True
    ratio_low: float = 0.8
    ratio_high: float = 1.2
    diff_enabled: bool = False
    diff_low: float = -0.2
    diff_high: float = 0.2
    comment: str = "of the user"


FILTER = {name: value for name, value in vars(Filter()).items() if name != "comment"}


def test_lists_of_objects() -> None:
    correction = SimpleNamespace(
        is_weight=SimpleNamespace(enabled=True, weight_type="token", upper_bound=None, detach=True),
        filters=[Filter(), Filter(agg_type="sequence", enabled=True), {"agg_typ": "typo"}],
    )
    config = SimpleNamespace(train_infer_correction=correction, pg_clip=0.1, track_with="wandb")
    expected = {
        "pg_clip": 0.1,
        "train_infer_correction": {
            "is_weight": vars(correction.is_weight),
            "filters": [
                FILTER,
                {**FILTER, "agg_type": "sequence", "enabled": True},
                {"agg_typ": "typo"},
            ],
        },
    }
    assert dialect_blocks.to_mapping("roll", config) == expected
    # A mapping travels with its typos; objects in it do not.
    written = {"train_infer_correction": {"filters": (Filter(),), "filter": 1}}
    assert dialect_blocks.to_mapping("roll", written) == {
        "train_infer_correction": {"filters": [FILTER], "filter": 1}
    }
    for value in (None, "token", [1, None]):
        block = {"train_infer_correction": {"filters": value}}
        assert dialect_blocks.to_mapping("roll", block) == block


def test_whole_files_of_areal_and_roll_are_sent_without_their_other_fields() -> None:
    """Secrets among them; a typo is for the server to refuse."""
    actor = {
        **{key: {"admin_api_key": "secret"} for key in OTHERS["areal"]},
        "eps_clip": 0.3,
        "c_clipp": 3.0,
        "rejection_sampling": {"uper": 5.0},
    }
    sent = {"eps_clip": 0.3, "c_clipp": 3.0, "rejection_sampling": {"uper": 5.0}}
    assert dialect_blocks.to_mapping("areal", actor) == sent
    tree = {"experiment_name": "e", "my_own": 1, "actor": actor, "eps_clip": 0.1}
    # The field above its place is for the server to refuse.
    assert dialect_blocks.to_mapping("areal", tree) == {"actor": sent, "eps_clip": 0.1}
    read = {"pg_variant": "tis", "worker_cls": "mine.PGWorker"}
    actor_train = {**read, "system_envs": {1: "secret"}}
    roll = {
        **{key: {1: "no JSON"} for key in OTHERS["roll"]},
        "pg_clip": 0.3,
        "pg_clp": 0.2,
        "actor_train": actor_train,
    }
    expected = {"pg_clip": 0.3, "pg_clp": 0.2, "actor_train": read}
    assert dialect_blocks.to_mapping("roll", roll) == expected
    config = SimpleNamespace(actor_train=SimpleNamespace(**actor_train), pg_clip=0.3)
    assert dialect_blocks.to_mapping("roll", config) == {"pg_clip": 0.3, "actor_train": read}
    config.actor_train = SimpleNamespace(model_args=None)
    assert dialect_blocks.to_mapping("roll", config) == {"pg_clip": 0.3, "actor_train": {}}


def test_of_verls_own_tree_only_the_nodes_that_the_server_reads() -> None:
    tree = {
        "trainer": {"wandb_key": "secret"},
        "rollout_is": "token",  # belongs below; the server refuses it
        "algorithm": {"gamma": 1.0, "rollout_correction": {"rollout_iss": "typo"}},
        "actor_rollout_ref": {
            "model": {"path": "/home/me"},
            "actor": {
                "clip_ratio": 0.2,
                "optim": {"lr": 1e-6},
                "policy_loss": {"loss_mod": "typo"},
            },
        },
    }
    expected = {
        "rollout_is": "token",
        "algorithm": {"rollout_correction": {"rollout_iss": "typo"}},
        "actor_rollout_ref": {"actor": {"clip_ratio": 0.2, "policy_loss": {"loss_mod": "typo"}}},
    }
    assert dialect_blocks.to_mapping("verl", tree) == expected


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the necessary parts of OmegaConf nodes, with a class behind them."""
    omegaconf = ModuleType("omegaconf")

    class DictConfig(dict[str, Any]):
        behind: type = dict

    class OmegaConf:
        @staticmethod
        def get_type(config: DictConfig) -> type:
            return config.behind

    omegaconf.DictConfig, omegaconf.OmegaConf = DictConfig, OmegaConf  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "omegaconf", omegaconf)

    def make(fields: dict[str, Any], behind: type = dict) -> DictConfig:
        config = DictConfig(fields)
        config.behind = behind
        return config

    return make


def test_an_omegaconf_node_is_an_object_if_a_class_is_behind_it(node: Any) -> None:
    fields = {"rollout_is": "token", "other": 1}
    assert dialect_blocks.to_mapping("verl", node(fields)) == fields
    assert dialect_blocks.to_mapping("verl", node(fields, GRPOConfig)) == {"rollout_is": "token"}
    with_target = {**fields, "_target_": "verl.trainer.config.RolloutCorrectionConfig"}
    assert dialect_blocks.to_mapping("verl", node(with_target)) == {"rollout_is": "token"}


@pytest.mark.parametrize(
    ("system", "config", "message"),
    [
        (
            "trl",
            SimpleNamespace(rollout_is="token"),
            "block must be a mapping, not SimpleNamespace",
        ),
        ("openrlhf", GRPOConfig(), "block must be a mapping, not GRPOConfig"),
        ("trl", GRPOConfig, "block must be a mapping, not type"),
        ("trl", None, "block must be a mapping, not NoneType"),
        ("none", GRPOConfig(), "block must be a mapping, not GRPOConfig"),
        ("skyrl", {"sapo": GRPOConfig()}, r"block\.sapo must be a mapping, not GRPOConfig"),
        (
            "roll",
            {"train_infer_correction": {"filters": [Filter(), GRPOConfig()]}},
            r"block\.train_infer_correction\.filters\[1\] must be a mapping, not GRPOConfig",
        ),
    ],
)
def test_other_objects_are_refused(system: str, config: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dialect_blocks.to_mapping(system, config)
