"""miles' functions: ``miles.backends.training_utils.loss_hub.corrections`` and its ``mis.py``.

    --use-tis --custom-tis-function-path counterweight_rl.compat.miles.icepop_function

They are slime's, letter by letter (radixark/miles @31f1ca961); see ``compat.slime``.
"""

from counterweight_rl.compat.slime import (
    compute_mis_weights,
    compute_mis_weights_with_cp,
    icepop_function,
    vanilla_tis_function,
)

__all__ = [
    "compute_mis_weights",
    "compute_mis_weights_with_cp",
    "icepop_function",
    "vanilla_tis_function",
]
