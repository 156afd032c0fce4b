# SPDX-License-Identifier: Apache-2.0
"""Every generation's wording, errors of several cores, processes and files, cut records, garbage
and other encodings.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from opscope.ascend.fault import Fault
from opscope.ascend.log import LogReader, read_logs, read_text
from opscope.ascend.program import program_counter

from .aicore_logs import arguments, classic, described, failed, head, info, stars

Faults = Callable[[str], tuple[Fault, ...]]


def test_several_cores_are_one_error_and_the_next_serial_is_another(faults: Faults) -> None:
    log = "".join(stars(1.0, core=core) for core in range(5)) + failed(
        1.2, "Add_0123456789abcdef0123456789abcdef_0"
    )
    log += stars(3.0, core=0, serial=8) + failed(
        3.2, "Mul_0123456789abcdef0123456789abcdef_0", task=9
    )
    first, second = faults(log)
    assert [core.core for core in first.cores] == [0, 1, 2, 3, 4]
    assert (first.kernel, second.kernel) == (
        "Add_0123456789abcdef0123456789abcdef_0",
        "Mul_0123456789abcdef0123456789abcdef_0",
    )
    assert [(fault.task, fault.stream) for fault in (first, second)] == [(6, 2), (9, 2)]
    assert first.cores[0].extend["subErrType"] == 4
    assert first.cores[0].message == "words of the runtime"


def test_interleaved_processes_are_kept_apart(faults: Faults) -> None:
    ours = [classic(1.0, pid=10), failed(1.1, "1_0_A", pid=10), arguments(1.2, [0x111], pid=10)]
    theirs = [
        classic(1.0, pid=20, code="0x2", core=3),
        failed(1.1, "1_0_B", pid=20),
        arguments(1.2, [0x222], pid=20),
    ]
    found = faults("".join(line for both in zip(ours, theirs, strict=True) for line in both))
    assert [
        (fault.pid, fault.kernel, fault.words_after, fault.cores[0].core) for fault in found
    ] == [
        (10, "1_0_A", (0x111,), 0),
        (20, "1_0_B", (0x222,), 3),
    ]


def test_what_the_runtime_repeats_is_said_once(faults: Faults) -> None:
    log = (
        classic(1.0)
        + failed(1.1, "1_0_A")
        + arguments(1.2, [1, 2])
        + failed(1.3, "1_0_A")
        + arguments(1.4, [1, 2])
        + classic(1.5)
    )
    (fault,) = faults(log)
    assert (len(fault.cores), fault.words_after) == (1, (1, 2))


def test_the_wording_of_2026(faults: Faults) -> None:
    log = (
        f"{head(1)}Proc:[DFX_INFO]An error occurs on the device(chipId:2, dieId:1), the "
        "serial number is 3, the error is aivec error, core id is 5,"
        " error code = 0x800000, dump info: pc start: 0x12c0c0020000, current: "
        "0x12c0c0020100, vec error info: 0, mte error info: 0x3000000,"
        " para base: 0x12c100010000, aic cond: 0x5a5a0001.\n"
        "The extend info: errcode:(0x800000, 0, 0) errorStr: The DDR address of the MTE "
        "instruction is out of range."
        " fixp_error0 info: 0, fixp_error1 info: 0, fsmId:1, tslot:2, thread:0, ctxid:4, "
        "blk:1, sublk:0, subErrType:4."
        ' Search for the keyword "AI Core Error".\n'
        f"{head(1.5)}Print:[DFX_INFO]AI Core kernel execution failed, device_id=2, "
        "stream_id=9, report_stream_id=9, task_id=4, flip_num=0,"
        " fault kernel_name=Add_0123456789abcdef0123456789abcdef_1, fault kernel info "
        "ext=none, program id=7, hash=9.\n"
    )
    (fault,) = faults(log)
    (core,) = fault.cores
    assert (core.device, core.die, core.serial, core.core, core.kind, core.bits) == (
        2,
        1,
        3,
        5,
        "aivec error",
        (23,),
    )
    assert core.registers["aic cond"] == 0x5A5A0001
    assert core.extend["ctxid"] == 4
    assert core.message == "The DDR address of the MTE instruction is out of range"
    assert (fault.kernel, fault.stream, fault.task) == (
        "Add_0123456789abcdef0123456789abcdef_1",
        9,
        4,
    )


@pytest.mark.parametrize(
    "wording",
    [
        "there is an exception of aivec error",
        "there is an error of aicore",
        "there is an aicore error exception",
    ],
)
def test_other_words_for_the_same(faults: Faults, wording: str) -> None:
    log = (
        f"{head(1)}P:The error from device(chipId:0, dieId:0), serial number is 4, {wording}, "
        "core id is 2, error code = 0x10, dump info: pc start: 0x10.\n"
    )
    (fault,) = faults(log)
    assert (fault.cores[0].core, fault.cores[0].bits, fault.cores[0].kind.startswith("ai")) == (
        2,
        (4,),
        True,
    )


def test_ascend_950(faults: Faults) -> None:
    log = (
        f"{head(1)}P:An error occurs on the device(chipId:0, dieId:0), the serial number is "
        "6, the error is aicore error, core id is 1, error code = 95, 264,"
        " dump info: pc start: 0x100000000, current: 0x100000200, sc error info: 0x1, su "
        "error info: 0x2,0x3, mte error info: 0x50, vec error info: 0,"
        " cube error info: 0, l1 error info: 0, aic error mask: 0, para base: 0x200, mte "
        "error: 0, aic cond: 0.\n"
        "The extend info: errcode:(95, 264, 0) errorStr: x. fsmId:0, tslot:0, thread:0, "
        "ctxid:0, blk:0, sublk:0, subErrType: 0x4.\n"
    )
    (fault,) = faults(log)
    (core,) = fault.cores
    assert (fault.generation, core.numbering, core.bits) == ("Ascend 950", "950", (95, 264))
    assert core.registers["su error info"] == (2, 3)
    alone = faults(log.replace("error code = 95, 264", "error code = 95"))[0]
    counter = program_counter(alone.cores[0], alone)
    assert counter is not None
    assert (counter.fixed, counter.offset) == (0x100000140, 0x140)


def test_of_two_kernels_at_once_the_task_says_which_start_counts(faults: Faults) -> None:
    log = (
        f"{head(1)}P:An error occurs on the device(chipId:0, dieId:0), the serial number is "
        "6, the error is aicore error, core id is 1, error code = 95,"
        " dump info: su error info: 0,0,0,0, current: 0x2100, first pc start: 0x1000, first "
        "taskid: 5, first streamid: 2, second pc start: 0x2000,"
        " second taskid: 6, second streamid: 2, isconcurrentexe: 1.\n"
    )
    (fault,) = faults(log + failed(1.2, "1_0_A", stream=2, task=6))
    counter = program_counter(fault.cores[0], fault)
    assert counter is not None
    assert (counter.start, counter.current) == (0x2000, 0x2100)


def test_the_device_slog_of_2020_joins_the_hosts_log() -> None:
    reader = LogReader()
    host = (
        "[ERROR] RUNTIME(77,python):2020-10-21-11:22:33.100.000 [stream.cc:7]77 "
        "GetError:aicore kernel execute failed, device_id=0, stream_id=517,"
        " task_id=3, fault kernel_name=-1_0_1_trans_TransData_0, "
        "func_name=te_transdata_0123456789abcdef0123456789abcdef_0__kernel0\n"
    )
    start = "[ERROR] TSCH(-1,null):2020-10-21-11:22:33.050.000 "
    device = (
        f"{start}<exception_print>TIME:2020, device_id=0, stream_id=517, task_id=3, "
        "exception_code=0x26\n"
        f"{start}core_list=0x3\n{start}####AICORE_INFO_START: core_id=1, AI_CORE_INT=0x1\n"
        f"{start}AIC_ERROR=0x800000\n{start}PC_START=0x1000\n{start}CURRENT_PC=0x1200\n{start}"
        f"PARA_BASE=0x2000\n{start}MTE_ERR_INFO=0x3000070\n"
        f"{start}BIU_STATUS[0]=0x5\n{start}X[3]=0x124080044010\n"
    )
    reader.read(io.BytesIO(host.encode()), "host.log")
    reader.read(io.BytesIO(device.encode()), "device-0.log")
    (fault,) = reader.faults()
    (core,) = fault.cores
    assert fault.function == "te_transdata_0123456789abcdef0123456789abcdef_0__kernel0"
    assert (core.core, core.bits, core.registers["pc start"], core.registers["mte error info"]) == (
        1,
        (23,),
        0x1000,
        0x3000070,
    )
    assert core.registers["X[3]"] == 0x124080044010
    assert len(fault.files) == 2


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("error code = 0x10, error string = The CCU instruction address check error", "0x10"),
        ("error code is 0x10 , error string: x", "0x10"),
        ("error code = 0, 0x4000, 0, error string = none", "0, 0x4000, 0"),
        ("error code = 0x800000", "0x800000"),
        ("error code = (0x10, 0)", "0x10, 0"),
    ],
)
def test_the_words_behind_an_error_code_are_not_the_code(
    said: str, code: str, faults: Faults
) -> None:
    log = (
        f"{head(1)}P:The error from device(0), serial number is 1, there is an aicore error, "
        f"core id is 1, {said}, dump info: pc start: 0x1000,"
        " current: 0x1200, vec error info: 0x0, mte error info: 0x3000070\n"
    )
    (fault,) = faults(log + failed(1.2, "1_0_A", stream=2, task=6))
    assert [core.code for core in fault.cores] == [code]


def test_the_newest_dumps_own_analysis(faults: Faults) -> None:
    log = (
        stars(1.0, core=3, code="0x200000000")
        + f"{head(1.1)}Error register information. coreId=3, coreType=AIV, AIC_ERR_0=0x0, "
        "AIC_ERR_1=0x2, MTE_ERR_0=0x6a, MTE_ERR_1=0xb9\n"
        + f"{head(1.1)}Error PC information. coreId=3, originalStartPC=0x12c0c0020000, "
        "fixedStartPC=0x12c0c0020000,"
        " originalCurrentPC=0x12c0c0020200, fixedCurrentPC=0x12c0c00201a8, fixedPCOffset=0x1a8\n"
        + f"{head(1.1)}Error symbol information. coreId=3, symbol=AddCustom_0+0x1a8\n"
        + f"{head(1.1)}[Symbolize] Group[0] oFile=/a/AddCustom_host.o fixedPCOffset=0x1a8 "
        f"source=/a/add_custom.cpp:42:7 cores=[{{3,AIV}}]\n"
        + failed(1.2, "AddCustom_0123456789abcdef0123456789abcdef_0")
    )
    (fault,) = faults(log)
    assert fault.program["source"] == "/a/add_custom.cpp:42:7"
    assert fault.program["symbol"] == "AddCustom_0+0x1a8"
    counter = program_counter(fault.cores[0], fault)
    assert counter is not None
    assert (counter.fixed, counter.method) == (0x12C0C00201A8, "exception dump itself")


def test_screen_block_with_several_cores(faults: Faults) -> None:
    text = (
        "EZ9999: Inner Error!\n        The device(1), core list[0-31], error code "
        "is:[FUNC:PrintCoreInfoErrMsg]\n"
        "        coreId( 0):        0x800000    coreId( 1):        0x800000    coreId( 2):    "
        "           0    coreId( 3):            0x10    \n"
        "        aicore kernel execute failed, device_id=1, stream_id=5, task_id=3, fault "
        "kernel_name=0_3_MatMul, func_name=te_matmul_x__kernel0\n"
    )
    (fault,) = faults(text)
    assert [(core.core, core.bits) for core in fault.cores] == [(0, (23,)), (1, (23,)), (3, (4,))]
    assert (fault.device, fault.kernel, fault.function) == (1, "0_3_MatMul", "te_matmul_x__kernel0")


def test_two_pasted_blocks_are_two_errors(faults: Faults) -> None:
    one = (
        "The device(0), core list[0-0], error code is:\ncoreId( 0):        0x800000    \nAicore "
        "kernel execute failed, device_id=0, stream_id=5, task_id={},"
    )
    text = (
        one.format(3) + " fault kernel_name=0_3_A\n" + one.format(4) + " fault kernel_name=0_3_B\n"
    )
    assert [fault.kernel for fault in faults(text)] == ["0_3_A", "0_3_B"]


def test_a_cut_record_is_marked_and_loses_its_torn_last_number(faults: Faults) -> None:
    line = f"{head(2)}LogExceptionTvmOpInfo:[AIC_INFO] tiling_data:" + "0x41 " * 400
    log = (
        classic(1.0)
        + failed(1.1, "1_0_A")
        + described(1.5, [], node="A", op="A")
        + line[:1021]
        + "\n"
    )
    (fault,) = faults(log)
    assert fault.tiling == b"A" * len(fault.tiling)
    assert fault.tiling_cut
    assert 150 < len(fault.tiling) < 200
    assert any("cut" in text for text in fault.warnings)


def test_a_record_that_goes_on_in_the_next_is_joined(faults: Faults) -> None:
    start = f"{head(2)}LogExceptionTvmOpInfo:"
    data = " ".join(f"0x{byte:02x}" for byte in range(240))
    text = f"{start}[AIC_INFO] tiling_data:{data}"
    rest = text[1020:]
    log = (
        classic(1.0)
        + failed(1.1, "1_0_A")
        + described(1.5, [], node="A", op="A")
        + text[:1020]
        + "\n"
        + start
        + rest
        + "\n"
    )
    (fault,) = faults(log)
    assert fault.tiling == bytes(range(240))
    assert not fault.tiling_cut


def test_garbage_and_other_encodings_are_tolerated() -> None:
    log = classic(1.0) + failed(1.1, "1_0_算子")
    noise = bytes(range(256)) * 40 + b"\n"
    for data in (
        noise + log.encode() + noise,
        noise + log.encode("gb18030") + noise,
        log.encode("utf-16"),
    ):
        (fault,) = read_text(data, "x").faults()
        assert (fault.kernel, fault.cores[0].bits) == ("1_0_算子", (23,))


def test_lines_across_the_edge_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opscope.ascend.records._CHUNK", 97)
    log = (
        info(0.5, "DevMalloc: Succ, size=512, type=2, moduleId=45, ptr=20068234764288")
        + stars(1.0)
        + failed(1.1, "1_0_A")
    )
    (fault,) = read_text(log.encode(), "x").faults()
    assert (fault.kernel, len(fault.cores), fault.cores[0].extend["blk"]) == ("1_0_A", 1, 2)
    assert fault.allocations is not None
    assert [one.size for one in fault.allocations] == [512]


def test_an_error_split_over_rotated_files(tmp_path: Path) -> None:
    reader = LogReader()
    reader.read(io.BytesIO(stars(1.0).encode()), "plog-4711_1.log")
    reader.read(
        io.BytesIO((failed(1.1, "1_0_A") + arguments(1.2, [5])).encode()), "plog-4711_2.log"
    )
    (fault,) = reader.faults()
    assert (fault.kernel, fault.words_after, len(fault.cores)) == ("1_0_A", (5,), 1)
    del tmp_path


def test_the_same_kernel_that_fails_again_later_is_a_second_error(faults: Faults) -> None:
    log = (
        stars(1.0)
        + failed(1.1, "1_0_A")
        + stars(30.0, serial=9)
        + failed(30.1, "1_0_A")
        + failed(30.2, "1_0_A")
    )
    first, second = faults(log)
    assert (first.kernel, second.kernel) == ("1_0_A", "1_0_A")
    assert [core.serial for core in second.cores] == [9]


@pytest.mark.parametrize(
    "text", ["", "\n" * 100, "plain text\nof a program\n", info(1, "DevFree: mem=1")]
)
def test_logs_without_an_error(faults: Faults, text: str) -> None:
    assert faults(text) == ()


HOSTILE = [
    arguments(1.2, [1]).replace("0x1", "9" * 6000),
    described(
        1.2,
        [
            "tiling_data:0x01 0x0k 0x02",
            "block_dim:" + "9" * 5000,
            "input:0;shape:[" + "9" * 5000 + "];addr:" + "9" * 5000,
        ],
        node="A",
        op="B",
    ),
    failed(1.2, "1_0_A", task=7).replace("task_id=7", "task_id=" + "7" * 5000),
    f"{head(1.2)}Error register information. coreId=0, AIC_ERR_{'1' * 5000}=0x1\n",
    (
        f"{head(1.2)}GetArgsInfo:tilingKey = {'1' * 5000}, print 1 Times totalLen=(1*8)Bytes, "
        f"argsSize={'9' * 5000}\n"
    ),
    f"{head(1.2)}[Dump][Exception] begin to load normal tensor, index:{'1' * 5000}\n",
    f"{head(1.2)}[AIC_INFO] " + "(" * 60000 + "\n",
    f"{head(1.2)}The error from "
    + "there is an " * 5000
    + "error code = "
    + "," * 5000
    + " dump info: "
    + "a: 1," * 5000
    + "\n",
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_end_quickly_and_raise_nothing(faults: Faults, line: str) -> None:
    found = faults(stars(1.0) + failed(1.1, "1_0_A") + line)
    assert found[0].kernel == "1_0_A"


def test_another_task_that_failed_before_does_not_take_the_kernel(faults: Faults) -> None:
    other = (
        f"{head(0.8)}ProcLogicCqReport:Task run failed, device_id=0, stream_id=9, task_id=9, "
        "sqe_type=3(notify), errType=0x1(task exception)\n"
    )
    ours = (
        f"{head(0.9)}ProcLogicCqReport:Task run failed, device_id=0, stream_id=2, task_id=6, "
        "sqe_type=0(ffts), errType=0x1(task exception)\n"
    )
    for before in (other + ours, ours + other, other):
        (fault,) = faults(before + stars(1.0) + failed(1.1, "1_0_A"))
        assert (fault.kernel, fault.stream, fault.task, len(fault.cores)) == ("1_0_A", 2, 6, 1)


def test_two_kernels_that_fail_at_once_find_their_cores_by_the_task(faults: Faults) -> None:
    def task(second: float, number: int) -> str:
        return (
            f"{head(second)}P:Task run failed, device_id=0, stream_id=2, task_id={number}, "
            "sqe_type=0(ffts), errType=0x1(task exception)\n"
        )

    log = task(0.9, 5) + stars(1.0, serial=1, core=3) + task(1.05, 6) + stars(1.1, serial=2, core=4)
    log += failed(1.2, "1_0_B", task=6) + failed(1.3, "1_0_A", task=5)
    first, second = faults(log)
    assert [(fault.kernel, [core.core for core in fault.cores]) for fault in (first, second)] == [
        ("1_0_A", [3]),
        ("1_0_B", [4]),
    ]


def test_interleaved_devices_of_one_thread_are_kept_apart(faults: Faults) -> None:
    first, second = faults(
        classic(1.0, core=1, device=0)
        + classic(1.001, core=2, device=1)
        + classic(1.002, core=3, device=0)
        + failed(1.1, "A", device=0)
        + failed(1.2, "B", device=1, stream=3)
    )
    assert [
        (one.device, one.kernel, [core.core for core in one.cores]) for one in (first, second)
    ] == [(0, "A", [1, 3]), (1, "B", [2])]


def test_a_chips_number_is_not_the_devices(faults: Faults) -> None:
    """On A3 each chip has two devices: die 1 of chip 0 is device 1."""
    (one,) = faults(stars(1.0) + failed(1.1, "A", device=1))
    assert (one.device, one.cores[0].device, one.cores[0].die, one.kernel) == (1, 0, 1, "A")


def test_cores_told_after_the_kernels_name_are_its_own(faults: Faults) -> None:
    (one,) = faults(failed(1.0, "A") + classic(1.2))
    assert (one.kernel, len(one.cores)) == ("A", 1)


def test_the_screens_own_head_tells_processes_apart(faults: Faults) -> None:
    line = (
        "EZ9999[PID: {pid}] 2026-04-14-06:40:35.03{n}.745 (EZ9999): The error from "
        "device(chipId:0, dieId:{n}), serial number is 1,"
        " there is an exception of aivec error, core id is {n}, error code = 0, dump info: pc "
        "start: 0x12420156a000,"
        " current: 0x12420156ad74, para base: "
        "0x12c100dccc00.[FUNC:PrintCoreInfo][FILE:device_error_core_proc.cc][LINE:347]\n"
    )
    first, second = faults(
        line.format(pid=1643, n=1)
        + line.format(pid=1642, n=2)
        + "RuntimeError: error code:507035\n"
    )
    assert (first.pid, first.time, first.cores[0].register("para base")) == (
        1643,
        "2026-04-14-06:40:35.031.745",
        0x12C100DCCC00,
    )
    assert (second.pid, [code.code for code in second.returned]) == (1642, ["507035"])


@pytest.mark.parametrize("how", ["terminal", "trimmed", "words"])
def test_text_that_a_terminal_or_a_mail_wrapped(faults: Faults, how: str) -> None:
    text = (
        "EZ9999: Inner Error!\nThe device(0), core list[0-3], error code "
        "is:[FUNC:PrintCoreInfoErrMsg][FILE:device_error_proc.cc][LINE:417]\n"
        "coreId( 0):        0x800000    coreId( 1):             0x0    coreId( 2):        "
        "0x800000    coreId( 3):            0x10    [FUNC:Pri"
        "ntCoreInfoErrMsg][FILE:device_error_proc.cc][LINE:428]\n"
        "Aicore kernel execute failed, device_id=0, stream_id=5, report_stream_id=3, "
        "task_id=3, fault kernel_name=0_11_L2Loss,"
        f" func_name=te_l2loss_{'c0' * 16}_d5135fe39437a0d0_0__kernel0, program id=3, "
        "hash=2896346369331939785[FUNC:GetError]\n"
    )
    if how == "words":
        wrapped = "\n".join(
            piece
            for line in text.splitlines()
            for piece in textwrap.wrap(line, 72, break_long_words=False)
        )
    else:
        wrapped = "\n".join(
            line[at : at + 80] for line in text.splitlines() for at in range(0, len(line), 80)
        )
    if how == "trimmed":
        wrapped = "\n".join(line.rstrip() for line in wrapped.splitlines())
    (one,) = faults(f"(base) root@host:~# python train.py\n{wrapped}\n(base) root@host:~#\n")
    assert [core.core for core in one.cores] == [0, 2, 3]
    assert (one.task, one.kernel, one.function) == (
        3,
        "0_11_L2Loss",
        f"te_l2loss_{'c0' * 16}_d5135fe39437a0d0_0__kernel0",
    )


def test_lines_of_one_length_are_not_wrapped_lines(faults: Faults) -> None:
    text = "".join(f"coreId( {place}):        0x800000    \n" for place in range(4))
    (one,) = faults(
        f"The device(0), core list[0-3], error code is:\n{text}Aicore kernel execute failed, "
        "device_id=0, stream_id=5\n"
    )
    assert len(one.cores) == 4


def test_the_manuals_example_of_ez2001(faults: Faults) -> None:
    """One message has the core, its extension and the fault of the memory that caused it."""
    (one,) = faults(
        "An error occurs on the device(chipId:0, dieId:0), the serial number is 3, the error "
        "is aivec error error, core id is 0, error code = 95,"
        " dump info: pc start: 0x120041000068, current: 0x120041000118, sc error info: "
        "0xffffffffffff,"
        " su error info: 0xeadbe7fe29c20002,0x80400000f800f7da, mte error info: "
        "0x263000000040041, vec error info: 0xbf7f93fe007efefa,"
        " cube error info: 0, l1 error info: 0, aic error mask: 0x395856, para base: "
        "0x120000200000, mte error: 0x80000000, aic cond: 0."
        " The extend info: errcode:(95) errorStr: The DDR address of the MTE instruction is "
        "out of range. subErrType: 0x4."
        " Fault RAS occurs in the system: [event_id:0x80e18400] New uncorrectable ECC / other "
        "uncorrectable memory error.\n"
    )
    (core,) = one.cores
    assert (core.kind, core.bits, one.generation) == ("aivec error", (95,), "Ascend 950")
    assert core.message == "The DDR address of the MTE instruction is out of range"
    assert [note.topic for note in one.notes] == ["ras"]
    assert "0x80e18400" in one.notes[0].text


def test_an_ffts_task_names_its_context(faults: Faults) -> None:
    (one,) = faults(
        f"{head(1.0)}fftsplus task execute failed, device_id=0, stream_id=42, "
        "report_stream_id=42, task_id=1, flip_num=0, context_id=12,"
        " thread_id=2, fault kernel_name=FFN, program id=1, hash=1.\n"
    )
    assert (one.kernel, one.context, one.thread) == ("FFN", 12, 2)


def test_a_call_of_aclnn_names_its_operator_where_the_name_belongs(faults: Faults) -> None:
    (one,) = faults(
        stars(1.0)
        + failed(1.1, "GatherV3_10")
        + described(1.2, (), node="GatherV3AiCore", op="aclnnIndexSelect_0_L0")
    )
    assert (one.node_name, one.node_type) == ("aclnnIndexSelect_0_L0", "GatherV3AiCore")


def test_very_many_allocations_are_kept_as_far_as_they_matter(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.ascend.log._KEPT_ALLOCATIONS", 64)
    pairs = "".join(
        info(0.001 * turn, f"DevMalloc: Succ, size=512, type=2, moduleId=45, ptr={4096 + turn}")
        + info(0.001 * turn, f"DevFree: mem={4096 + turn}")
        for turn in range(500)
    )
    text = info(0.0, "DevMalloc: Succ, size=512, type=2, moduleId=45, ptr=1024") + pairs
    (one,) = faults(
        text
        + info(0.9, "DevMalloc: Succ, size=64, type=2, moduleId=45, ptr=9999999")
        + classic(1.0)
        + failed(1.1, "A")
    )
    assert one.allocations is not None
    assert [known.address for known in one.allocations if known.freed_at is None] == [1024, 9999999]
    many = "".join(
        info(0.001 * turn, f"DevMalloc: Succ, size=512, type=2, moduleId=45, ptr={4096 + turn}")
        for turn in range(200)
    )
    (one,) = faults(many + classic(1.0) + failed(1.1, "A"))
    assert one.allocations is None  # more than are kept: nothing is said of addresses


def test_ranks_that_print_at_once_are_kept_apart(faults: Faults) -> None:
    block = (
        "EZ9999: Inner Error!",
        "The device({n}), core list[0-0], error code is:[FUNC:PrintCoreInfoErrMsg]",
        "coreId( 0):        0x{n}0    [FUNC:PrintCoreInfoErrMsg]",
        (
            "Aicore kernel execute failed, device_id={n}, stream_id=5, task_id=3, fault "
            "kernel_name=0_11_Op{n}, program id=3, hash=28[FUNC:GetError]"
        ),
    )
    for prefix in ("[rank{n}]: ", "[default{n}]:"):
        text = "".join(
            f"{prefix.format(n=n)}{line.format(n=n)}\n" for line in block for n in (1, 2)
        )
        first, second = faults(text)
        assert [
            (one.kernel, one.cores[0].code, one.pid, one.process) for one in (first, second)
        ] == [
            ("0_11_Op1", "0x10", None, "rank 1"),
            ("0_11_Op2", "0x20", None, "rank 2"),
        ]


def test_the_same_task_of_two_hosts_is_two_errors(tmp_path: Path) -> None:
    (tmp_path / "plog-1_1.log").write_text(classic(1.0, pid=1) + failed(1.1, "A", pid=1))
    (tmp_path / "plog-2_1.log").write_text(failed(1.2, "A", pid=2))
    assert [len(fault.cores) for fault in read_logs(sorted(tmp_path.iterdir())).faults()] == [1, 0]


def test_containers_of_two_hosts_may_have_equal_process_numbers(tmp_path: Path) -> None:
    for host, core in (("node-0", 1), ("node-1", 2)):
        for kind, text in (
            ("debug", classic(1.0, core=core, pid=370)),
            ("run", failed(1.1, host, pid=370)),
        ):
            place = tmp_path / host / "log" / kind / "plog"
            place.mkdir(parents=True)
            (place / "plog-370_1.log").write_text(text)
    found = read_logs(sorted(tmp_path.rglob("*.log"))).faults()
    assert sorted((one.kernel, [core.core for core in one.cores], one.pid) for one in found) == [
        ("node-0", [1], 370),
        ("node-1", [2], 370),
    ]


def core950(code: str, message: str, *, kind: str = "aivec error") -> str:
    """A core of Ascend 950 as the screen shows it."""
    return (
        "EZ9999[PID: 71] 2026-02-03-04:05:06.000.000 (EZ9999):  The error from "
        f"device(chipId:0, dieId:0), serial number is 9, there is an {kind}"
        f" exception, core id is 0, error code = {code}, dump info: pc start: 0x100040900000, "
        "current: 0x100040900010,"
        " sc error info: 0xffff, su error info: 0x1,0x2, mte error info: 0x30, vec error "
        "info: 0, cube error info: 0, l1 error info: 0,"
        " aic error mask: 0x395856, para base: 0x100040300000, mte error: "
        "0.[FUNC:P][FILE:d.cc][LINE:580]\n"
        f"       The extend info: errcode:({code}) errorStr: {message}. subErrType: "
        "0x4.[FUNC:P][FILE:d.cc][LINE:583]\n"
    )


def test_code_0_of_ascend_950_is_no_bit(faults: Faults) -> None:
    (one,) = faults(core950("0", "timeout or trap error"))
    assert (one.generation, one.cores[0].bits, one.cores[0].message) == (
        "Ascend 950",
        (),
        "timeout or trap error",
    )
    (named,) = faults(core950("0", "L0A is read and written at one address", kind="aicore error"))
    assert named.cores[0].bits == (0,)


def test_a_line_that_only_sums_up_names_no_kernel(faults: Faults) -> None:
    log = core950("286", "The trap instruction reports an error") + (
        "       Vector Core kernel execution failed, "
        "retCode=0x31.[FUNC:GetError][FILE:stream.cc][LINE:1875]\n"
        "       [DFX_INFO]AI Core kernel execution failed, device_id=0, stream_id=6, "
        "report_stream_id=6, task_id=1, flip_num=0,"
        " fault kernel_name=Trap_1, fault kernel info ext=none, program id=0, "
        "hash=3.[FUNC:GetError][FILE:stream.cc][LINE:1875]\n"
    )
    (one,) = faults(log)
    assert (one.kernel, one.cores[0].bits, one.stream) == ("Trap_1", (286,), 6)
    assert "0x31" in [code.code for code in one.returned]


def test_the_cores_tell_the_number_of_the_card(faults: Faults) -> None:
    """A process that sees one of eight cards calls it 0; the cores of the old screen say 5."""
    head_ = (
        "[ERROR] SESSION(77,ffff,python):2021-03-04-05:06:07.000.000 [a/b.cc:9] Report] "
        "Ascend error occurred, error message:\n"
    )
    screen = (
        "        The device(5), core list[0-0], error code "
        "is:[FUNC:P][FILE:d.cc][LINE:461]\n        coreId( 0):        0x800000    [FUNC:P]\n"
    )
    kernel = (
        "        Aicore kernel execute failed, device_id=0, stream_id=14, "
        "report_stream_id=17, task_id=13, fault kernel_name=add_7_0__kernel0\n"
    )
    (one,) = faults(head_ + "EZ9999: Inner Error!\n" + screen + kernel)
    assert (one.kernel, one.stream, [core.core for core in one.cores]) == (
        "add_7_0__kernel0",
        14,
        [0],
    )


OTHERS = {
    "SDMA": (
        f"{head(1)}Print:fftsplus task execute failed, dev_id=0, stream_id=5, task_id=2, "
        "context_id=1, thread_id=0, err_type=4[fftsplus sdma error]\n"
        f"{head(1)}Notify:fftsplus streamId=5, taskId=2, context_id=1, "
        "rtCode=0x715006c,[fftsplus task exception], kernel_name=not found\n"
    ),
    "AICPU": (
        f"{head(1)}Print:The error from device(chipId:0, dieId:0), serial number is 6, an "
        "exception occurred during AICPU execution, stream_id:5,"
        " task_id:7, errcode:1, msg:execute kernel param invalid.\n"
        f"{head(1)}Print:Aicpu kernel execute failed, device_id=0, stream_id=5, task_id=7, "
        "errorCode=0x2a.\n"
    ),
    "HCCL timeout": "The error from device(chipId:3, dieId:0), serial number is 9, hccl fftsplus "
    "task timeout occurred during task execution, task_id:7.\n",
    "out of memory": "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.00 "
    "GiB total capacity)\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_failures_of_other_engines_are_no_error_of_a_core(name: str) -> None:
    reader = read_text(OTHERS[name].encode(), "-")
    assert (reader.faults(), list(reader.codes)) == ((), [name])


def test_an_e_code_in_brackets_is_listed() -> None:
    reader = read_text(
        b"[PID: 74] 2025-10-11-12:13:14.000.000 Get_Socket_Timeout(EI0006): Getting socket "
        b"times out.\n",
        "-",
    )
    assert list(reader.codes) == ["EI0006"]


def test_the_graph_engine_says_whose_task_failed(faults: Faults) -> None:
    tracked = (
        f"{head(1.5, module='GE')}Callback: Error happened, origin_op_name [a], op_name "
        f"[Add_48], task_id {{}}, stream_id 2.\n"
    )
    (one,) = faults(stars(1.0) + failed(1.2, "te_add_0__kernel0") + tracked.format(6))
    assert one.node_name == "Add_48"
    (other,) = faults(stars(1.0) + failed(1.2, "te_add_0__kernel0") + tracked.format(9))
    assert other.node_name is None


def test_the_two_halves_of_a_mixed_kernel_are_one_error(faults: Faults) -> None:
    """On Ascend 950 each half has its own serial number; a core and a vector core may have the same
    number.
    """
    second = core950("0", "timeout or trap error").replace(
        "serial number is 9", "serial number is 10"
    )
    named = (
        "       AI Core kernel execution failed, device_id=0, stream_id=6, task_id=1, "
        "flip_num=0, fault kernel_name=Mixed_1_mix_aic\n"
    )
    (one,) = faults(core950("95", "out of range", kind="aicore error") + second + named)
    assert [(core.core, core.kind, core.bits) for core in one.cores] == [
        (0, "aicore error", (95,)),
        (0, "aivec error", ()),
    ]
    assert one.kernel == "Mixed_1_mix_aic"
    later = core950("95", "out of range") + core950("96", "x").replace(
        "serial number is 9", "serial number is 10"
    )
    assert len(faults(later)) == 2  # the same kind again: the next error
