"""Names that remain the peers' own, with peers defined here."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import verl

CORE_ALGOS = "verl.trainer.ppo.core_algos"
SKYRL = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"
PEERS = ("verl", "skyrl", "openrlhf", "nemo_rl")
# The way to a peer in the error of its absence.
WAYS = {"nemo_rl": "a clone of https://github.com/NVIDIA-NeMo/RL"}
NAMES = [
    ("verl", CORE_ALGOS, "agg_loss"),
    ("verl", CORE_ALGOS, "compute_value_loss"),
    ("verl", CORE_ALGOS, "kl_penalty"),
    ("verl", CORE_ALGOS, "AdvantageEstimator"),
    ("verl", CORE_ALGOS, "register_policy_loss"),
    ("verl", "verl.trainer.ppo.rollout_corr_helper", "apply_bypass_mode"),
    ("skyrl", SKYRL, "off_policy_correction_enabled"),
    ("skyrl", SKYRL, "compute_tis_ratio"),
    ("openrlhf", "openrlhf.models", "Actor"),
    ("openrlhf", "openrlhf.models", "aggregate_loss"),
    ("nemo_rl", "nemo_rl.algorithms.loss", "ClippedPGLossConfig"),
    ("nemo_rl", "nemo_rl.algorithms.loss", "wrap_loss_fn_with_input_preparation"),
]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a module of a peer for imports."""

    def put(name: str, **attributes: Any) -> None:
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)

    return put


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peer is installed."""
    for peer in PEERS:
        for name in [n for n in sys.modules if n.partition(".")[0] == peer]:
            monkeypatch.delitem(sys.modules, name)

    class PeersAreNotInstalled:
        def find_spec(self, name: str, *_: Any) -> None:
            if name in PEERS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [PeersAreNotInstalled(), *sys.meta_path])


@pytest.mark.parametrize(("peer", "home", "name"), NAMES)
def test_names_are_the_peers_own(fake: Any, peer: str, home: str, name: str) -> None:
    own = object()
    fake(home, **{name: own})
    namespace: dict[str, Any] = {}
    exec(f"from counterweight_rl.compat.{peer} import {name}", namespace)
    assert namespace[name] is own


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(("peer", "home", "name"), NAMES)
def test_without_the_peer_the_error_says_what_to_install(peer: str, home: str, name: str) -> None:
    module = importlib.import_module(f"counterweight_rl.compat.{peer}")
    way = WAYS.get(peer, f"pip install {peer}")
    with pytest.raises(ImportError, match=rf"^{module.__name__}\.{name}: .*{way}$"):
        getattr(module, name)


@pytest.mark.parametrize("peer", PEERS)
def test_other_names_do_not_exist(peer: str) -> None:
    module = importlib.import_module(f"counterweight_rl.compat.{peer}")
    with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute 'x'$"):
        _ = module.x


def test_what_a_peer_lacks_itself_is_its_own_error(fake: Any) -> None:
    fake("verl")  # like a package without the submodule
    with pytest.raises(ModuleNotFoundError, match=r"verl\.trainer"):
        _ = verl.agg_loss


def test_losses_that_others_registered_with_verl(fake: Any) -> None:
    def mine() -> None:
        pass

    fake(CORE_ALGOS, POLICY_LOSS_REGISTRY={"mine": mine, "vanilla": mine})
    assert verl.get_policy_loss_fn("mine") is mine
    assert verl.get_policy_loss_fn("vanilla") is verl.compute_policy_loss_vanilla
    with pytest.raises(ValueError, match=r"Unsupported loss mode: ppo\..*'cispo'.*'mine'\]$"):
        verl.get_policy_loss_fn("ppo")


@pytest.mark.usefixtures("absent")
def test_without_verl_there_are_our_losses_alone() -> None:
    assert verl.get_policy_loss_fn("vanilla") is verl.compute_policy_loss_vanilla
    with pytest.raises(ValueError, match=r"Unsupported loss mode: ppo\..*'bypass_mode'\]$"):
        verl.get_policy_loss_fn("ppo")
