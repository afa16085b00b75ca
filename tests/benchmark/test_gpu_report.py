"""The parts of a GPU's report: known answers of the readers of machine code and of profiles."""

from __future__ import annotations

import json
import pathlib

import gpu_profile
import gpu_table
import pytest
import sass_loops

# A loop of 4 instructions with another in it, a branch around both, and code after the end that
# returns into the outer loop: it belongs to the loop, though it is behind it.
CODE = """
\t\tFunction : _Z4walkv
        /*0000*/                   MOV R1, c[0x0][0x28] ;             /* 0x1 */
        /*0010*/              @!P0 BRA 0x90 ;                         /* 0x2 */
        /*0020*/                   LDG.E R2, desc[UR4][R2.64] ;       /* 0x3 */
        /*0030*/                   FADD R3, R2, R3 ;                  /* 0x4 */
        /*0040*/               @P1 BRA 0x30 ;                         /* 0x5 */
        /*0050*/               @P2 BRA 0xa0 ;                         /* 0x6 */
        /*0060*/                   DADD R4, R4, R6 ;                  /* 0x7 */
        /*0070*/               @P3 BRA 0x20 ;                         /* 0x8 */
        /*0080*/                   NOP ;                              /* 0x9 */
        /*0090*/                   EXIT ;                             /* 0xa */
        /*00a0*/                   STG.E desc[UR4][R8.64], R3 ;       /* 0xb */
        /*00b0*/                   BRA 0x60 ;                         /* 0xc */
"""

PROFILE = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum"
"","","ns","byte","byte"
"0","void walk_kernel<(bool)1, (int)2>(Plan, Job)","2,000,000","3,000,000,000","1,000,000,000"
"""


def test_code_is_read() -> None:
    code = sass_loops.parse(CODE)["_Z4walkv"]
    assert [i.base for i in code[:3]] == ["MOV", "BRA", "LDG"]
    assert code[1].predicated
    assert code[1].target == 0x90


def test_main_loop_has_what_comes_back_to_its_head_and_nothing_else() -> None:
    main, inner = sass_loops.Graph(sass_loops.parse(CODE)["_Z4walkv"]).loops()
    assert [i.address for i in main.instructions] == [*range(0x20, 0x80, 16), 0xA0, 0xB0]
    assert main.inner == 1
    assert [i.address for i in inner.instructions] == [0x30, 0x40]


def test_profile_is_bandwidth_of_bytes_over_time() -> None:
    (launch,) = gpu_profile.launches(PROFILE)
    cells = gpu_profile.row("token_tis", launch)
    assert cells[1] == "`walk_kernel<1, 2>`"
    assert cells[2:4] == ["2.000", "2000"]


@pytest.fixture
def results(tmp_path: pathlib.Path) -> pathlib.Path:
    lines = [
        {"part": "copy", "best": 4e12, "median": 4e12},
        {"part": "link", "memory": "pinned", "up": 5e10, "down": 5e10, "both": 8e10},
        {
            "part": "kernel",
            "table": "methods",
            "work": "token_tis",
            "tokens": 10**9,
            "length": 4096,
            "bytes_per_token": 14,
            "best": 3.9e-3,
            "median": 4e-3,
            "call": 5e-3,
        },
    ]
    # A part that was interrupted in the middle of a line.
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"part": "ker'
    (tmp_path / "kernels.jsonl").write_text(text)
    return tmp_path


def test_target_is_met_or_missed_by_the_median(results: pathlib.Path) -> None:
    report = gpu_table.Report(results)
    # 14 GB in 4 ms are 3.5 of 4 TB/s.
    assert "| `token_tis` | >= 85% | 87.5% | met |" in report.targets()
    report.copy = 5e12
    assert "| `token_tis` | >= 85% | 70.0% | missed |" in report.targets()


def test_link_is_bound_by_the_busier_direction_or_by_both() -> None:
    link = {"up": 5e10, "down": 5e10, "both": 8e10}
    mostly_up = {"up_bytes": 10**10, "down_bytes": 10**9}
    alike = {"up_bytes": 10**10, "down_bytes": 10**10}
    assert gpu_table.Report.floor(mostly_up, link) == pytest.approx(0.2)
    assert gpu_table.Report.floor(alike, link) == pytest.approx(0.25)


def test_what_was_not_measured_is_said(tmp_path: pathlib.Path) -> None:
    assert gpu_table.Report(tmp_path).markdown().count(gpu_table.MISSING) >= 7
