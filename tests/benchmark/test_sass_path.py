"""The way that sass_path follows through code, on code of a few lines."""

from __future__ import annotations

import pytest
import sass_loops
import sass_path

CODE = """
	Function : kernel
        /*0000*/                   FADD R0, R1, R2 ;
        /*0010*/              @!P0 BRA 0x40 ;
        /*0020*/                   DADD R4, R6, R8 ;
        /*0030*/                   BRA 0x50 ;
        /*0040*/                   FSETP.GT.AND P0, PT, R0, R1, PT ;
        /*0050*/                   BRA.DIV UR5, 0x20 ;
        /*0060*/               @P0 BRA 0x0 ;
        /*0070*/                   EXIT ;
"""


def addresses(taken: set[int], end: int = 0x70) -> list[int]:
    code = sass_loops.parse(CODE)["kernel"]
    return [i.address for i in sass_path.follow(code, 0, end, taken)]


def test_conditional_branches_are_taken_where_named() -> None:
    assert addresses(set()) == [0x00, 0x10, 0x20, 0x30, 0x50, 0x60, 0x70]
    assert addresses({0x10}) == [0x00, 0x10, 0x40, 0x50, 0x60, 0x70]


def test_a_way_that_never_ends_is_refused() -> None:
    with pytest.raises(SystemExit, match="comes back to 0"):
        addresses({0x60})


def test_units_are_counted_per_token() -> None:
    code = sass_loops.parse(CODE)["kernel"]
    text = sass_path.summary(sass_path.follow(code, 0, 0x70, {0x10}), 2, 14)
    assert text.startswith("6 instructions, 3.0 a token (fma 0.5, alu 0.5); issue allows 100 %")
