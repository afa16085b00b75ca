"""A trainer's share of the trial: corrects the real rollouts of tests/demo through shared memory."""

import os
import time

import counterweight_rl as cw
import rollouts

METHOD = cw.Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05)


def main() -> None:
    """Corrects each step by shared memory and by messages, which have to agree."""
    target = os.environ["COUNTERWEIGHT_TARGET"]
    with (
        cw.Client(target, transport="shared_memory") as shared,
        cw.Client(target, transport="unary") as messages,
    ):
        for step in rollouts.read_steps():
            start = time.monotonic()
            result = shared.correct(method=METHOD, **step.batch)
            milliseconds = 1000 * (time.monotonic() - start)
            other = messages.correct(method=METHOD, **step.batch)
            assert result.weights.tobytes() == other.weights.tobytes()
            kept = int(result.keep_mask.sum())
            print(f"{step.name}: kept {kept} of {step.tokens()} tokens, {milliseconds:.1f} ms")
    print(f"user {os.getuid()} shared memory with the server at {target}; messages give the same")


if __name__ == "__main__":
    main()
