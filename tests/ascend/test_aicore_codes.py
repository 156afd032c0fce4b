# SPDX-License-Identifier: Apache-2.0
"""Error bits, info registers and codes against the tables of the specification, and the program
counter's two corrections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.ascend import registers, registers950
from opscope.ascend.bits import CAUSES
from opscope.ascend.codes import acl_code, explain_code, explain_status, return_code
from opscope.ascend.fault import Core
from opscope.ascend.program import program_counter
from opscope.cli import main
from opscope.errors import UsageError

# Numbers and the word in their names or meanings, from the specification's table.
CLASSIC = {
    0: "biu_l2_read_oob", 3: "ccu_div0", 9: "cube_invld_input", 20: "ifu_bus_err",
    23: "mte_biu_rdwr_resp", 32: "mte_gdma_read_overflow",
    33: "mte_gdma_write_overflow", 48: "mte_write_overflow", 53: "vec_illegal_mask",
    63: "biu_dfx_err", 72: "ccu_inf_nan", 78: "ccu_addr_err",
    93: "read_3d_overflow", 99: "cnt_sw_bus_err", 109: "sc_reg_parity_err", 111: "mte_err_waitset",
    120: "ccu_seq_err", 124: "mte_ub_wr_ovflw",
    127: "ccu_safety_crc_err", 128: "mte_timeout", 136: "biu_unsplit_err",
    140: "ccu_cross_core_set_ovfl_err", 142: "pbuf_wrap_around",
    144: "mte_err_l0c_rdwr_cflt", 145: "vec_data_excpt_mte", 148: "vec_instr_timeout",
    157: "vec_div_by_zero", 175: "vec_err_parity_err",
}  # fmt: skip
CHIP950 = {
    4: "invld_input", 66: "mte_l1_ecc", 79: "atm", 95: "biu_rdwr_resp", 128: "l1_l0a",
    163: "fixp_fbuf_wr_overflow", 192: "bus", 258: "div0", 286: "trap",
    320: "data_excp", 334: "biu", 340: "ub_addr_overflow", 352: "join",
}  # fmt: skip


def test_every_classic_bit_has_a_name_a_meaning_and_a_cause() -> None:
    assert sorted(registers.BITS) == list(range(176))
    assert len({bit.name for bit in registers.BITS.values()}) == 176
    assert all(bit.meaning and bit.cause in CAUSES.values() for bit in registers.BITS.values())
    for number, word in CLASSIC.items():
        assert word in registers.bit(number).name


def test_ascend_950_bits() -> None:
    for number, word in CHIP950.items():
        assert word in registers.bit(number, registers.ASCEND950).name
    assert all(bit.cause in CAUSES.values() for bit in registers950.BITS.values())
    assert registers.bit(3, registers.ASCEND950).meaning == "reserved or not documented"


@given(st.sets(st.integers(0, 175)))
def test_words_and_bits_are_each_others_inverse(numbers: set[int]) -> None:
    words = [0, 0, 0]
    for number in numbers:
        if number < 128:
            words[number // 64] |= 1 << number % 64
        else:
            words[2] |= 1 << (number - 128 if number < 145 else number - 145 + 32)
    assert registers.bits_of(words) == tuple(sorted(numbers))


def test_info_registers() -> None:
    fields = {
        unit: dict(_pairs(unit, word))
        for unit, word in (
            ("mte", 0x0_001F00),
            ("vec", 0x00FF_2300),
            ("ifu", 0x3_0000_1234_5678),
            ("biu", 0x3FFFFFF),
        )
    }
    assert fields["mte"] == {"type": "000 read of poisoned data", "address": hex(0x1F << 5)}
    assert fields["vec"] == {"address": hex(0xFF << 5), "repeat": "35"}
    assert fields["ifu"] == {
        "type": "011 read decode error: no module has the address",
        "address": "0x12345678",
    }
    assert fields["biu"] == {"address": "0x1ffffff"}
    assert dict(_pairs("ccu", 0x7FFF00)) == {"address": hex(0x7FFF << 3)}
    assert dict(_pairs("cube", 0x1FF00)) == {"address": hex(0x1FF << 9)}


def _pairs(unit: str, word: int) -> list[tuple[str, str]]:
    return [(field.name, field.value) for field in registers.decode_info(unit, word)]


def _core(
    bits: tuple[int, ...],
    *,
    die: int | None = 0,
    extend: dict[str, Any] | None = None,
    numbering: str = "classic",
    **words: Any,
) -> Core:
    said = {
        "pc start": 0x12C0C0020000,
        "current": 0x12C0C0021234,
        **{name.replace("_", " "): word for name, word in words.items()},
    }
    return Core(
        core=0,
        bits=bits,
        die=die,
        registers=said,
        extend=extend or {"fsmId": 0},
        numbering=numbering,
    )


@pytest.mark.parametrize(
    ("bits", "words", "fixed"),
    [
        ((33,), {"mte_error_info": 0x12_0000006A}, 0x12C0C0000000 | 0x12 << 10 | 0x6A << 2),
        ((52,), {"vec_error_info": 0x05_000000F0}, 0x12C0C0000000 | 0x05 << 10 | 0xF0 << 2),
        ((9,), {"cube_error_info": 0x07_0000F1}, 0x12C0C0000000 | 0x07 << 10 | 0xF1 << 2),
        ((3,), {"ccu_error_info": 0x07 << 23 | 0x11}, 0x12C0C0000000 | 0x07 << 10 | 0x11 << 2),
        ((102,), {}, 0x12C0C0000000 | 0x09 << 10 | 0x21 << 2),
    ],
)
def test_the_registers_hold_the_counter(
    bits: tuple[int, ...], words: dict[str, int], fixed: int
) -> None:
    counter = program_counter(
        _core(
            bits, extend={"fsmId": 0, "fixp_error0 info": 0x21, "fixp_error1 info": 0x09}, **words
        )
    )
    assert counter is not None
    assert counter.fixed is not None
    assert hex(counter.fixed) == hex(fixed)


def test_no_correction_where_there_is_none_to_make() -> None:
    for core in (
        _core(()),
        _core((20,)),
        _core((3, 33), mte_error_info=5, ccu_error_info=5),
        _core((33,), die=None, extend={"aicore int": 1}, mte_error_info=5),
    ):
        counter = program_counter(core)
        assert counter is not None
        assert counter.fixed is None
        assert counter.offset == 0x1234
    assert program_counter(Core(core=0)) is None


def test_the_heuristic_takes_eight_bits_and_steps_back_a_kilobyte() -> None:
    ahead = program_counter(_core((52,), vec_error_info=0xFF))
    assert ahead is not None
    assert ahead.heuristic == 0x13FC - 1024
    scalar = program_counter(_core((3,), ccu_error_info=0xFF))
    assert scalar is not None
    assert scalar.heuristic == 0x1234


@pytest.mark.parametrize(
    ("numbering_words", "fixed"),
    [
        (((262,), {"su_error_info": (0x1_0000_8123, 0)}), 0x12C0C0000000 | 0x8123 << 2),
        (((2,), {"cube_error_info": 0x00004567_00000001}), 0x12C0C0000000 | 0x4567 << 2),
        (((330,), {"vec_error_info": (0xC0021230_00000007, 0x12C0, 0)}), 0x12C0_C0021230),
    ],
)
def test_the_registers_of_950(
    numbering_words: tuple[tuple[int, ...], dict[str, Any]], fixed: int
) -> None:
    bits, words = numbering_words
    counter = program_counter(_core(bits, numbering="950", **words))
    assert counter is not None
    assert counter.fixed is not None
    assert hex(counter.fixed) == hex(
        fixed | (0x12C0C0021234 & ~0x3FFFC) if bits != (330,) else fixed
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("0x800000", "global memory"),
        ("107002", "CONTEXT_NULL"),
        ("507015", "AICORE_EXCEPTION"),
        ("507035", "VECTOR_CORE_EXCEPTION"),
        ("EI0006", "socket"),
        ("ez9999", "AI Core"),
        ("0x26", "aicore exception"),
        ("0x7150026", "aicore exception"),
        ("0x91", "task exception"),
        ("0x222", "another device"),
        ("0x7150222", "another device"),
        ("0x30", "vector core"),
        ("0x6c", "FFTS+"),
        ("95,264", "biu_rdwr_resp"),
        ("95", "biu_rdwr_resp"),
        ("hccl:9", "timeout"),
        ("0", "timeout or trap"),
        ("105", "memset"),
        ("161002", "aclnn"),
        ("E89999", "operator"),
        ("999999", "none of the tables"),
        ("8388608", "global memory"),
        ("207001", "memory"),
    ],
)
def test_codes_in_words(code: str, words: str) -> None:
    assert words in " ".join(f"{one.name} {one.text}" for one in explain_code(code))


def test_status_272_of_the_manual() -> None:
    assert [one.code for one in explain_status(272)] == ["0x10", "0x100"]
    assert "overflow" in explain_status(0)[0].text
    assert explain_status(0x1000)[0].name == "not documented"


@pytest.mark.parametrize("code", ["", "abc", "hccl:99", "-5", "0x"])
def test_what_is_no_code(code: str) -> None:
    with pytest.raises(UsageError):
        explain_code(code)


def test_return_codes() -> None:
    assert (return_code(0x26), return_code(0x31), return_code(0x91), return_code(0x7150026)) == (
        "aicore exception",
        "vector core exception",
        "task exception",
        "aicore exception",
    )
    assert return_code(5) is None
    assert acl_code(1) is None


def test_numbers_on_the_command_line(
    aicore: Callable[..., tuple[int, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = aicore("--status", "272", "--code", "0x800000")
    assert code == 0
    assert [one["code"] for one in document["summary"]["meanings"]] == ["0x10", "0x100", "bit 23"]
    assert main(["aicore", "--status", "x"]) == 2
    assert main(["aicore"]) == 2
    assert main(["aicore", "--cod", "5"]) == 2
    assert all(line.startswith("opscope: ") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("507015,107002", ["ACL_ERROR_RT_AICORE_EXCEPTION", "ACL_ERROR_RT_CONTEXT_NULL"]),
        ("EI0006 507904", ["EI0006", "ACL_ERROR_RT_COMM_OP_RETRY_FAIL"]),
        ("95, 330", ["mte_biu_rdwr_resp", "vec_err_instr_undef"]),
        ("(0x200000000, 0, 0)", ["mte_gdma_write_overflow"]),
        ("0,0,0", ["timeout or trap"]),
        ("0x0, 0x1", ["ccu_sbuf_ecc"]),
    ],
)
def test_several_codes_at_once(code: str, names: list[str]) -> None:
    assert [one.name for one in explain_code(code)] == names


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("507100", "nearest known: 507056"),
        ("423456", "in none of the tables"),
        ("EK0003", "profiling: not in the table, an error of the input"),
        ("EF9999", "LxFusion: internal error"),
        ("e99999", "module not known: internal error"),
        ("EZ2001", "operator: AI Core error"),
        ("EL0004", "driver: memory cannot be allocated"),
    ],
)
def test_codes_of_which_little_is_known_say_so(code: str, said: str) -> None:
    assert said in explain_code(code)[0].text
