# SPDX-License-Identifier: Apache-2.0
"""The error registers of an AI Core: what each bit is called, what it means, what usually causes
it.

Two numberings are in use. The classic one (910A, 310P, 910B, A3) puts the registers AIC_ERROR_0 to
5 (32, 32, 32, 32, 17 and 31 bits) behind each other; logs print it as up to three 64-bit words.
Ascend 950 gives each unit its own base and logs print the numbers of the bits themselves, in
decimal. The names are those the runtime prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from opscope.ascend.bits import (
    ADDRESS,
    ALIGNMENT,
    BUFFER,
    CODE,
    CONFLICT,
    HARDWARE,
    PARAMETER,
    SYNC,
    TIMEOUT,
    VALUES,
    Bit,
)
from opscope.ascend.registers950 import BITS as BITS950

CLASSIC, ASCEND950 = "classic", "950"


#         first number | names | meaning | kind of cause; names without a word of their own share
#         the meaning
_CLASSIC_ROWS: tuple[tuple[int, str, str, str], ...] = (
    (
        0,
        "biu_l2_read_oob",
        "L2 read out of bounds, trap or timeout; the address is in the BIU info",
        ADDRESS,
    ),
    (1, "biu_l2_write_oob", "L2 write out of bounds; the address is in the BIU info", ADDRESS),
    (
        2,
        "ccu_call_depth_ovrflw",
        "function calls nested deeper than the limit register allows",
        CODE,
    ),
    (3, "ccu_div0", "scalar division by zero", VALUES),
    (
        4,
        "ccu_illegal_instr",
        "illegal instruction: a bad opcode or a misaligned instruction address",
        CODE,
    ),
    (5, "ccu_loop_cnt_err", "a loop with the count 0", PARAMETER),
    (6, "ccu_loop_err", "a jump from outside into the body of a loop", CODE),
    (7, "ccu_neg_sqrt", "scalar square root of a negative number", VALUES),
    (8, "ccu_ub_ecc", "ECC error when the scalar unit reads the unified buffer", HARDWARE),
    (9, "cube_invld_input", "NaN or Inf fed to the matrix unit (L0A, L0B or L0C)", VALUES),
    (10, "cube_l0a_ecc", "ECC error in L0A", HARDWARE),
    (11, "cube_l0a_rdwr_cflt", "L0A read and written at one address at once", CONFLICT),
    (12, "cube_l0a_wrap_around", "generated address in L0A out of range", BUFFER),
    (13, "cube_l0b_ecc", "ECC error in L0B", HARDWARE),
    (14, "cube_l0b_rdwr_cflt", "L0B read and written at one address at once", CONFLICT),
    (15, "cube_l0b_wrap_around", "generated address in L0B out of range", BUFFER),
    (16, "cube_l0c_ecc", "ECC error in L0C", HARDWARE),
    (17, "cube_l0c_rdwr_cflt", "L0C read and written at one address at once", CONFLICT),
    (
        18,
        "cube_l0c_self_rdwr_cflt",
        "the matrix unit reads and writes L0C at one address at once",
        CONFLICT,
    ),
    (19, "cube_l0c_wrap_around", "generated address in L0C out of range", BUFFER),
    (
        20,
        "ifu_bus_err",
        "bus error while an instruction was fetched; type and address are in the IFU info",
        CODE,
    ),
    (21, "mte_aipp_illegal_param", "illegal AIPP registers", PARAMETER),
    (22, "mte_bas_raddr_obound", "load3d: base address out of range", BUFFER),
    (
        23,
        "mte_biu_rdwr_resp",
        (
            "access to global memory through the BIU failed: bad or unmapped device address, or "
            "poisoned data"
        ),
        ADDRESS,
    ),
    (24, "mte_cidx_overflow", "load3d: channel index too large", PARAMETER),
    (25, "mte_decomp", "decompression failed", PARAMETER),
    (26, "mte_f1wpos_larger_fsize", "load3d: window position beyond the feature map", PARAMETER),
    (27, "mte_fmap_less_kernel", "load3d: feature map smaller than the kernel", PARAMETER),
    (28, "mte_fmapwh_larger_l1size", "load3d: feature map larger than L1", PARAMETER),
    (29, "mte_fpos_larger_fsize", "load3d: filter position beyond the feature map", PARAMETER),
    (30, "mte_gdma_illegal_burst_len", "DMA with the burst length 0", PARAMETER),
    (31, "mte_gdma_illegal_burst_num", "DMA with the burst count 0", PARAMETER),
    (32, "mte_gdma_read_overflow", "DMA reads beyond its on-chip buffer", BUFFER),
    (33, "mte_gdma_write_overflow", "DMA writes beyond its on-chip buffer", BUFFER),
    (34, "mte_comp", "compression failed", PARAMETER),
    (35, "mte_illegal_fm_size", "load3d: illegal size of the feature map", PARAMETER),
    (36, "mte_illegal_l1_3d_size", "load3d: illegal L1 size", PARAMETER),
    (37, "mte_illegal_stride", "load3d: illegal stride", PARAMETER),
    (38, "mte_l0a_rdwr_cflt", "L0A written by a load while it is read", CONFLICT),
    (39, "mte_l0b_rdwr_cflt", "L0B written by a load while it is read", CONFLICT),
    (40, "mte_l1_ecc", "ECC error in L1", HARDWARE),
    (41, "mte_padding_cfg", "load3d: illegal padding", PARAMETER),
    (42, "mte_read_overflow", "load2d reads out of bounds", BUFFER),
    (43, "mte_rob_ecc", "ECC error in the reorder buffer", HARDWARE),
    (44, "mte_tlu_ecc", "ECC error in the lookup unit", HARDWARE),
    (45, "mte_ub_ecc", "ECC error in the unified buffer", HARDWARE),
    (46, "mte_unzip", "the unzip unit failed", PARAMETER),
    (47, "mte_write_3d_overflow", "load3d writes out of bounds", BUFFER),
    (48, "mte_write_overflow", "load2d writes out of bounds", BUFFER),
    (
        49,
        "vec_data_excp_ccu",
        "the scalar unit accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (
        50,
        "vec_data_excp_mte",
        "a DMA accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (
        51,
        "vec_data_excp_vec",
        "a vector instruction accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (52, "vec_div0", "vector division by zero; the repeat is in the VEC info", VALUES),
    (53, "vec_illegal_mask", "vector instruction whose mask is all zero", PARAMETER),
    (54, "vec_inf_nan", "vector instruction with NaN or Inf in its input or result", VALUES),
    (55, "vec_l0c_ecc", "ECC error when the vector unit reads L0C", HARDWARE),
    (56, "vec_l0c_rdwr_cflt", "the vector unit reads L0C where it is being written", CONFLICT),
    (57, "vec_neg_ln", "vector logarithm of a number that is not positive", VALUES),
    (58, "vec_neg_sqrt", "vector square root of a negative number", VALUES),
    (59, "vec_same_blk_addr", "vector instruction that names one block twice", PARAMETER),
    (60, "vec_ub_ecc", "ECC error when the vector unit reads the unified buffer", HARDWARE),
    (
        61,
        "vec_ub_self_rdwr_cflt",
        "a vector instruction reads and writes one place at once (lite parts only)",
        CONFLICT,
    ),
    (62, "vec_ub_wrap_around", "generated address in the unified buffer out of range", BUFFER),
    (63, "biu_dfx_err", "any fault of the BIU", ADDRESS),
    (64, "ccu_sbuf_ecc", "ECC error in the scalar buffer", HARDWARE),
    (
        65,
        "vec_col2img_rd_fm_addr_ovflow",
        "col2img: address of the feature map out of range",
        PARAMETER,
    ),
    (
        66,
        "vec_col2img_rd_dfm_addr_ovflow",
        "col2img: address of the destination out of range",
        PARAMETER,
    ),
    (67, "vec_col2img_illegal_fm_size", "col2img: illegal size of the feature map", PARAMETER),
    (68, "vec_col2img_illegal_stride", "col2img: illegal stride", PARAMETER),
    (
        69,
        "vec_col2img_illegal_1st_win_pos",
        "col2img: illegal position of the first window",
        PARAMETER,
    ),
    (70, "vec_col2img_illegal_fetch_pos", "col2img: illegal fetch position", PARAMETER),
    (71, "vec_col2img_illegal_k_size", "col2img: illegal kernel size", PARAMETER),
    (72, "ccu_inf_nan", "scalar floating-point operand is NaN or Inf", VALUES),
    (73, "mte_illegal_schn_cfg", "load3d: the rule for few channels is broken", PARAMETER),
    (74, "mte_atm_addr_misalg", "address of an atomic access not aligned", ALIGNMENT),
    (
        75,
        "vec_instr_addr_misalign",
        "vector instruction: address in the unified buffer not aligned",
        ALIGNMENT,
    ),
    (76, "vec_instr_illegal_cfg", "vector instruction with an illegal configuration", PARAMETER),
    (77, "vec_instr_undef", "vector instruction this chip does not have", CODE),
    (78, "ccu_addr_err", "address of a scalar access out of range or not aligned", ADDRESS),
    (79, "ccu_bus_err", "bus error of the scalar data cache", ADDRESS),
    (80, "mte_err_addr_misalign", "DMA instruction: address not aligned to the element", ALIGNMENT),
    (81, "mte_err_dw_pad_conf_err", "depthwise: illegal padding", PARAMETER),
    (82, "mte_err_dw_fmap_h_illegal", "depthwise: height of the feature map below 3", PARAMETER),
    (83, "mte_err_wino_l0b_write_overflow", "winograd: L0B written out of bounds", BUFFER),
    (84, "mte_err_wino_l0b_read_overflow", "winograd: L1 read out of bounds for L0B", BUFFER),
    (85, "mte_err_illegal_v_cov_pad_ctl", "winograd: illegal vertical padding", PARAMETER),
    (86, "mte_err_illegal_h_cov_pad_ctl", "winograd: illegal horizontal padding", PARAMETER),
    (87, "mte_err_illegal_w_size", "winograd: illegal width", PARAMETER),
    (88, "mte_err_illegal_h_size", "winograd: illegal height", PARAMETER),
    (89, "mte_err_illegal_chn_size", "load3d: illegal number of channels", PARAMETER),
    (90, "mte_err_illegal_k_m_ext_step", "load3d: illegal extension of k or m", PARAMETER),
    (91, "mte_err_illegal_k_m_start_pos", "load3d: illegal start of k or m", PARAMETER),
    (92, "mte_err_illegal_smallk_cfg", "load3d: illegal small-k configuration", PARAMETER),
    (93, "mte_err_read_3d_overflow", "load3d reads L1 out of bounds", BUFFER),
    (94, "ccu_veciq_ecc", "ECC error in the queue of vector instructions", HARDWARE),
    (95, "ccu_dc_data_ecc", "ECC error in the data of the scalar cache", HARDWARE),
    (96, "ccu_dc_tag_ecc", "ECC error in the tags of the scalar cache", HARDWARE),
    (97, "ccu_div0_fp", "scalar float32 division by zero", VALUES),
    (98, "ccu_neg_sqrt_fp", "scalar float32 square root of a negative number", VALUES),
    (99, "cnt_sw_bus_err", "bus error during a context switch", HARDWARE),
    (100, "fixp_err_instr_addr_misal", "FIXPIPE: address not aligned", ALIGNMENT),
    (101, "fixp_err_illegal_cfg", "FIXPIPE: illegal configuration", PARAMETER),
    (102, "fixp_err_read_l0c_ovflw", "FIXPIPE reads L0C out of bounds", BUFFER),
    (103, "fixp_err_read_l1_ovflw", "FIXPIPE reads L1 out of bounds", BUFFER),
    (104, "fixp_err_read_ub_ovflw", "FIXPIPE reads the unified buffer out of bounds", BUFFER),
    (105, "fixp_err_write_l1_ovflw", "FIXPIPE writes L1 out of bounds", BUFFER),
    (106, "fixp_err_write_ub_ovflw", "FIXPIPE writes the unified buffer out of bounds", BUFFER),
    (107, "fixp_err_fbuf_write_ovflw", "FIXPIPE writes its own buffer out of bounds", BUFFER),
    (108, "fixp_err_fbuf_read_ovflw", "FIXPIPE reads its own buffer out of bounds", BUFFER),
    (109, "sc_reg_parity_err", "safety check: parity error in a register", HARDWARE),
    (110, "mte_err_fifo_parity", "parity error in a queue of the DMA", HARDWARE),
    (111, "mte_err_waitset", "set and wait of the DMA used wrongly", SYNC),
    (112, "ccu_err_parity_err", "parity error in a buffer of the scalar unit", HARDWARE),
    (113, "mte_err_cache_ecc", "ECC error in a cache of the DMA", HARDWARE),
    (114, "cube_err_hset_cnt_unf", "set counter of the matrix unit below zero", SYNC),
    (115, "cube_err_hset_cnt_ovf", "set counter of the matrix unit too large", SYNC),
    (116, "mte_err_instr_illegal_cfg", "DMA instruction with an illegal configuration", PARAMETER),
    (117, "mte_err_hebcd", "HEBCD instruction failed", PARAMETER),
    (118, "mte_err_hebce", "HEBCE instruction failed", PARAMETER),
    (119, "mte_err_waipp", "WAIPP instruction failed", PARAMETER),
    (120, "ccu_seq_err", "instructions in an order that is not allowed", CODE),
    (121, "ccu_mpu_err", "the memory protection refuses a scalar address", ADDRESS),
    (122, "ccu_lsu_err", "scalar access outside its stack window", ADDRESS),
    (123, "ccu_pb_ecc_err", "ECC error in the parameter buffer", HARDWARE),
    (124, "mte_ub_wr_ovflw", "DMA writes the unified buffer out of bounds", BUFFER),
    (125, "mte_ub_rd_ovflw", "DMA reads the unified buffer out of bounds", BUFFER),
    (126, "cube_illegal_instr", "matrix instruction that is not allowed", CODE),
    (127, "ccu_safety_crc_err", "safety check: wrong CRC", HARDWARE),
    (128, "mte_timeout", "a DMA did not answer in time", TIMEOUT),
    (
        129,
        "mte_ub_rd_cflt",
        "the DMA reads the unified buffer where it is being written (lite parts)",
        CONFLICT,
    ),
    (
        130,
        "mte_ub_wr_cflt",
        "the DMA writes the unified buffer where it is being used (lite parts)",
        CONFLICT,
    ),
    (131, "mte_ktable_wr_addr_overflow", "write to the k table out of bounds (lite parts)", BUFFER),
    (
        132,
        "mte_ktable_rd_addr_overflow",
        "read from the k table out of bounds (lite parts)",
        BUFFER,
    ),
    (
        133,
        "ccu_ub_rd_cflt",
        "the scalar unit reads the unified buffer where it is being written (lite parts)",
        CONFLICT,
    ),
    (
        134,
        "ccu_ub_wr_cflt",
        "the scalar unit writes the unified buffer where it is being used (lite parts)",
        CONFLICT,
    ),
    (135, "ccu_ub_overflow_err", "the scalar unit leaves the unified buffer (lite parts)", BUFFER),
    (136, "biu_unsplit_err", "an access that the BIU cannot split", ADDRESS),
    (137, "mte_stb_ecc_err", "ECC error in the store buffer", HARDWARE),
    (138, "mte_aipp_ecc_err", "ECC error in the AIPP unit", HARDWARE),
    (139, "ccu_lsu_atomic_err", "scalar atomic access failed", ADDRESS),
    (140, "ccu_cross_core_set_ovfl_err", "flag counter between cores above 15", SYNC),
    (141, "fixp_err_out_write_overflow", "FIXPIPE writes its output out of bounds", BUFFER),
    (
        142,
        "cube_err_pbuf_wrap_around",
        "matrix unit: address in the parameter buffer out of range",
        BUFFER,
    ),
    (143, "fixp_l0c_ecc", "ECC error when FIXPIPE reads L0C", HARDWARE),
    (144, "mte_err_l0c_rdwr_cflt", "L0C read and written at one address at once", CONFLICT),
    (
        145,
        "vec_data_excpt_mte",
        "a DMA accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (
        146,
        "vec_data_excpt_su",
        "the scalar unit accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (
        147,
        "vec_data_excpt_vec",
        "a vector instruction accesses the unified buffer outside the window set for it",
        BUFFER,
    ),
    (148, "vec_instr_timeout", "a vector instruction did not end in time", TIMEOUT),
    (149, "vec_instrs_undef", "vector instruction this chip does not have", CODE),
    (150, "vec_instr_ill_cfg", "vector instruction with an illegal configuration", PARAMETER),
    (151, "vec_instr_misalign", "vector instruction: address not aligned", ALIGNMENT),
    (152, "vec_instr_ill_mask", "vector instruction with an illegal mask", PARAMETER),
    (153, "vec_instr_ill_sqzn", "vector instruction: illegal squeeze", PARAMETER),
    (
        154,
        "vec_ub_addr_wrap_around",
        "generated address in the unified buffer out of range",
        BUFFER,
    ),
    (155, "vec_ub_ecc_mberr", "ECC error of several bits in the unified buffer", HARDWARE),
    (156, "vec_idata_inf_nan", "NaN or Inf in the input of a vector instruction", VALUES),
    (157, "vec_div_by_zero", "vector division by zero", VALUES),
    (158, "vec_valu_neg_ln", "vector logarithm of a number that is not positive", VALUES),
    (159, "vec_valu_neg_sqrt", "vector square root of a negative number", VALUES),
    (160, "vec_vci_idata_out_range", "VCI: input out of range", VALUES),
    (161, "vec_ill_vloop_op", "illegal instruction in a vector loop", CODE),
    (162, "vec_ill_vloop_sreg", "illegal scalar register in a vector loop", CODE),
    (163, "vec_ld_num_mismatch", "vector loop: number of loads does not match", CODE),
    (164, "vec_st_num_mismatch", "vector loop: number of stores does not match", CODE),
    (165, "vec_ex_num_mismatch", "vector loop: number of instructions does not match", CODE),
    (166, "vec_ld_num_exceed_limit", "vector loop: too many loads", CODE),
    (167, "vec_st_num_exceed_limit", "vector loop: too many stores", CODE),
    (168, "vec_ill_instr_padding", "vector loop: illegal padding of instructions", CODE),
    (169, "vec_ill_vga_vpd_order", "vector loop: illegal order of addresses and data", CODE),
    (170, "vec_ic_ecc_err", "ECC error in the instruction cache of the vector unit", HARDWARE),
    (171, "vec_biu_resp_err", "the BIU answers the vector unit with an error", ADDRESS),
    (172, "vec_pb_ecc_mberr", "ECC error of several bits in the parameter buffer", HARDWARE),
    (173, "vec_pb_read_no_resp", "the parameter buffer does not answer", HARDWARE),
    (174, "vec_valu_ill_issue", "the vector unit was given an instruction it cannot issue", CODE),
    (175, "vec_err_parity_err", "parity error in the vector unit", HARDWARE),
)


def _unit(name: str) -> str:
    if name == "cnt_sw_bus_err":
        return "SC"
    return name.partition("_")[0].upper()


BITS = {
    number: Bit(number, name, _unit(name), meaning, kind)
    for number, name, meaning, kind in _CLASSIC_ROWS
}


def bits_of(words: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the bits set in the classic words code0, code1, code2.

    Word 2 holds 17 bits of register 4 in its low half (numbers 128 to 144), 31 of register 5 in its
    high half (145 to 175).
    """
    low, middle, high = (*words, 0, 0, 0)[:3]
    joined = (
        (low & _WORD)
        | (middle & _WORD) << 64
        | ((high & 0x1FFFF) | (high >> 32 & 0x7FFFFFFF) << 17) << 128
    )
    return tuple(number for number in range(joined.bit_length()) if joined >> number & 1)


_WORD = (1 << 64) - 1


def bit(number: int, numbering: str = CLASSIC) -> Bit:
    """The bit of this number; one that no source names says so."""
    table = BITS if numbering == CLASSIC else BITS950
    return table.get(number) or Bit(number, f"bit{number}", "", "reserved or not documented", "")


def units(numbers: Iterable[int], numbering: str = CLASSIC) -> tuple[str, ...]:
    """Units whose bits these are, each once, in the order of the bits."""
    return tuple(
        dict.fromkeys(unit for unit in (bit(number, numbering).unit for number in numbers) if unit)
    )


class Decoded(msgspec.Struct, frozen=True):
    """One field read out of an info register: what it is and its value as text."""

    name: str
    value: str


SOC_TYPES = {
    0b000: "read of poisoned data",
    0b001: "read out of range",
    0b010: "read bus error",
    0b011: "read decode error: no module has the address",
    0b101: "write out of range",
    0b110: "write bus error",
    0b111: "write decode error: no module has the address",
}


def decode_info(unit: str, word: int) -> tuple[Decoded, ...]:
    """Fields of a classic error info register ("ifu", "mte", "vec", "ccu", "cube", "biu");
    addresses are approximate.

    A field holds bits 19:5 (MTE), 17:5 (VEC), 17:3 (CCU) or 17:9 (CUBE) of an on-chip address; IFU
    holds bits 47:2 of an address in global memory; types are those of the system on chip.
    """
    unit = unit.lower()
    if unit == "ifu":
        return (_type(word >> 48 & 7), Decoded("address", hex((word >> 2 & (1 << 46) - 1) << 2)))
    if unit == "mte":
        return (_type(word >> 24 & 7), Decoded("address", hex((word >> 8 & 0x7FFF) << 5)))
    if unit == "vec":
        return (
            Decoded("address", hex((word >> 16 & 0x1FFF) << 5)),
            Decoded("repeat", str(word >> 8 & 0xFF)),
        )
    if unit == "ccu":
        return (Decoded("address", hex((word >> 8 & 0x7FFF) << 3)),)
    if unit == "cube":
        return (Decoded("address", hex((word >> 8 & 0x1FF) << 9)),)
    if unit == "biu":
        return (Decoded("address", hex(word & 0x1FFFFFF)),)
    return ()


def _type(code: int) -> Decoded:
    return Decoded("type", f"{code:03b} {SOC_TYPES.get(code, 'not documented')}")


# Bits whose unit leaves a type in its own info register.
TYPED = {23: "mte", 20: "ifu"}
TRAPS = {
    0x5A5A0001: "out-of-memory check: read out of bounds",
    0x5A5A0002: "out-of-memory check: write out of bounds",
}
