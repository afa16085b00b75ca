"""Writes the table of fields that a system's configuration has and its dialect does not read.

    COUNTERWEIGHT_PEER=areal COUNTERWEIGHT_PEER_CHECKOUT=CLONE other_fields.py

prints one table of server/engine/dialects/other_fields.h.
"""

from __future__ import annotations

import releases
import written_defaults
from counterweight_rl.dialect_fields import FIELDS

# The classes of the configurations, and the files that they and their bases are in.
CLASSES = {
    "areal": (("PPOActorConfig",), ("areal/api/cli_args.py",)),
    "roll": (
        ("RLVRConfig", "AgenticConfig"),
        (
            *("roll/configs/base_config.py", "roll/pipeline/rlvr/rlvr_config.py"),
            "roll/pipeline/agentic/agentic_config.py",
        ),
    ),
}
# Keys of a file that its loader takes out.
OF_LOADER = {"areal": (), "roll": ("defaults", "hydra")}


def names() -> list[str]:
    """Returns the table of the checkout that this process has activated."""
    classes, paths = CLASSES[releases.PEER]
    found = set(OF_LOADER[releases.PEER])
    for name in classes:
        found |= written_defaults.fields_of(paths, name)
    return sorted(found - FIELDS[releases.PEER].keys())


if __name__ == "__main__":
    print(f"inline constexpr std::string_view k{releases.PEER.title()}OtherFields[] = {{")
    print("\n".join(f'    "{name}",' for name in names()))
    print("};")
