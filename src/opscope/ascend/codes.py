# SPDX-License-Identifier: Apache-2.0
"""Numbers and codes that CANN prints, in words: AscendCL and runtime codes, task return codes,
E-codes of the screen, verdicts of msaicerr.

Names are those of the public headers and manuals (acl/error_codes/rt_error_codes.h, acl_base.h, the
tables of aclnn's return codes and of HcclResult), each held against them; the advice is ours.
Return codes other than 0x26, 0x31 and 0x91 have no
published table: they say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from opscope.ascend import registers
from opscope.ascend.bits import CAUSES, TIMEOUT
from opscope.ascend.registers import ASCEND950, CLASSIC
from opscope.errors import UsageError
from opscope.formats.opdebug import CORE_WORDS


class Meaning(msgspec.Struct, frozen=True):
    """What one code says: whose code it is, its name, and in words what it means and what to do."""

    code: str
    family: str
    name: str
    text: str


_RT: dict[int, tuple[str, str]] = {
    107000: ("PARAM_INVALID", "invalid parameter"),
    107001: (
        "INVALID_DEVICEID",
        "invalid device id; check ASCEND_RT_VISIBLE_DEVICES and npu-smi info",
    ),
    107002: (
        "CONTEXT_NULL",
        (
            "no context: call aclrtSetDevice (torch.npu.set_device) in this thread before, or it "
            "was reset already"
        ),
    ),
    107003: (
        "STREAM_CONTEXT",
        "the stream is not of the current context; create and use it under the same device",
    ),
    107004: ("MODEL_CONTEXT", "the model is not of the current context"),
    107005: ("STREAM_MODEL", "the stream is not of this model"),
    107006: ("EVENT_TIMESTAMP_INVALID", "invalid time stamp of an event"),
    107007: ("EVENT_TIMESTAMP_REVERSAL", "time stamps of events run backwards"),
    107008: ("ADDR_UNALIGNED", "an address is not aligned"),
    107009: ("FILE_OPEN", "a file cannot be opened"),
    107010: ("FILE_WRITE", "a file cannot be written"),
    107011: ("STREAM_SUBSCRIBE", "the stream is not subscribed, or twice"),
    107012: ("THREAD_SUBSCRIBE", "the thread is not subscribed, or twice"),
    107013: ("GROUP_NOT_SET", "group not set"),
    107014: ("GROUP_NOT_CREATE", "group not created"),
    107015: ("STREAM_NO_CB_REG", "the stream has no callback"),
    107016: ("INVALID_MEMORY_TYPE", "invalid type of memory"),
    107017: ("INVALID_HANDLE", "invalid handle"),
    107018: ("INVALID_MALLOC_TYPE", "invalid type of allocation"),
    107019: ("WAIT_TIMEOUT", "a wait timed out"),
    107020: ("TASK_TIMEOUT", "a task timed out"),
    107021: ("SYSPARAMOPT_NOT_SET", "system parameter not set"),
    107022: (
        "DEVICE_TASK_ABORT",
        "tasks of the device were aborted, mostly after an earlier fault: look for the first error",
    ),
    107023: (
        "STREAM_ABORT",
        "the stream was aborted, mostly after an earlier fault: look for the first error",
    ),
    107024: ("CAPTURE_DEPENDENCY", "capturing a graph: a dependency that cannot be captured"),
    107025: ("STREAM_UNJOINED", "capturing a graph: a forked stream was not joined again"),
    107026: ("MODEL_CAPTURED", "the model is being captured"),
    107027: ("STREAM_CAPTURED", "the stream is being captured: such a call is not allowed there"),
    107028: ("EVENT_CAPTURED", "the event is being captured"),
    107029: ("STREAM_NOT_CAPTURED", "the stream is not being captured"),
    107030: (
        "CAPTURE_MODE_NOT_SUPPORT",
        "capturing a graph: the call is not supported in this mode",
    ),
    107031: ("STREAM_CAPTURE_IMPLICIT", "capturing a graph: the default stream must not take part"),
    107035: ("TASK_ABORT_STOP", "tasks of the device were aborted before they were done"),
    107036: ("STREAM_CAPTURE_UNMATCHED", "the capture was not begun in this stream"),
    207000: ("FEATURE_NOT_SUPPORT", "the chip or driver does not support this"),
    207001: ("MEMORY_ALLOCATION", "device out of memory, or an allocation failed"),
    207002: ("MEMORY_FREE", "freeing memory failed"),
    207003: (
        "AICORE_OVER_FLOW",
        (
            "AI Core overflow: an operator left the range of its type; run opscope scan on the "
            "overflow dump"
        ),
    ),
    207004: ("NO_DEVICE", "no device"),
    207005: ("RESOURCE_ALLOC_FAIL", "a resource could not be allocated"),
    207006: ("NO_PERMISSION", "no permission"),
    207007: ("NO_EVENT_RESOURCE", "no event left"),
    207008: ("NO_STREAM_RESOURCE", "no stream left"),
    207009: ("NO_NOTIFY_RESOURCE", "no notify left"),
    207010: ("NO_MODEL_RESOURCE", "no model left"),
    207011: ("NO_CDQ_RESOURCE", "no CDQ left"),
    207012: ("OVER_LIMIT", "over the limit"),
    207013: ("QUEUE_EMPTY", "queue empty"),
    207014: ("QUEUE_FULL", "queue full"),
    207015: ("REPEATED_INIT", "initialised twice"),
    207016: ("AIVEC_OVER_FLOW", "vector core overflow: an operator left the range of its type"),
    207017: ("OVER_FLOW", "overflow"),
    207018: ("DEVICE_OOM", "device out of memory"),
    207019: (
        "FEATURE_NOT_SUPPORT_UPDATE_OP",
        "this operator cannot be updated in a captured graph",
    ),
    507000: ("INTERNAL_ERROR", "internal error of the runtime"),
    507001: ("TS_ERROR", "internal error of the task scheduler"),
    507002: ("STREAM_TASK_FULL", "the stream is full of tasks"),
    507003: ("STREAM_TASK_EMPTY", "the stream has no task"),
    507004: ("STREAM_NOT_COMPLETE", "the stream is not complete"),
    507005: ("END_OF_SEQUENCE", "end of the sequence"),
    507006: ("EVENT_NOT_COMPLETE", "the event is not complete"),
    507007: ("CONTEXT_RELEASE_ERROR", "releasing the context failed"),
    507008: ("SOC_VERSION", "the binary is for another chip (SoC version)"),
    507009: ("TASK_TYPE_NOT_SUPPORT", "a kind of task that is not supported"),
    507010: ("LOST_HEARTBEAT", "the task scheduler stopped answering; the device may need a reset"),
    507011: ("MODEL_EXECUTE", "the model failed; the log before it names the task"),
    507012: ("REPORT_TIMEOUT", "a report timed out"),
    507013: ("SYS_DMA", "system DMA error"),
    507014: (
        "AICORE_TIMEOUT",
        (
            "an AI Core task ran too long (an endless loop, a wait without set); run opscope "
            "aicore on the process logs"
        ),
    ),
    507015: (
        "AICORE_EXCEPTION",
        "a kernel failed on an AI Core; run opscope aicore on the process logs",
    ),
    507016: (
        "AICORE_TRAP_EXCEPTION",
        "a kernel ran into a trap (an assertion or a check of addresses) on an AI Core",
    ),
    507017: ("AICPU_TIMEOUT", "an AI CPU task ran too long"),
    507018: (
        "AICPU_EXCEPTION",
        "an AI CPU task failed; the device log of aicpu names the operator",
    ),
    507019: ("AICPU_DATADUMP_RSP_ERR", "AI CPU: the data dump did not answer"),
    507020: ("AICPU_MODEL_RSP_ERR", "AI CPU: the model did not answer"),
    507021: ("PROFILING_ERROR", "profiling failed"),
    507022: ("IPC_ERROR", "inter-process communication failed"),
    507023: ("MODEL_ABORT_NORMAL", "the model was aborted in order"),
    507024: ("KERNEL_UNREGISTERING", "the kernel is being unregistered"),
    507025: ("RINGBUFFER_NOT_INIT", "ring buffer not initialised"),
    507026: ("RINGBUFFER_NO_DATA", "ring buffer empty"),
    507027: ("KERNEL_LOOKUP", "the kernel is not registered"),
    507028: ("KERNEL_DUPLICATE", "the kernel is registered twice"),
    507029: ("DEBUG_REGISTER_FAIL", "registering overflow detection failed"),
    507030: ("DEBUG_UNREGISTER_FAIL", "unregistering overflow detection failed"),
    507031: ("LABEL_CONTEXT", "the label is not of the current context"),
    507032: ("PROGRAM_USE_OUT", "too many programs are registered"),
    507033: ("DEV_SETUP_ERROR", "the device could not be started"),
    507034: (
        "VECTOR_CORE_TIMEOUT",
        (
            "a vector core task ran too long; run opscope aicore on the process logs, which name "
            "the kernel"
        ),
    ),
    507035: (
        "VECTOR_CORE_EXCEPTION",
        "a kernel failed on a vector core; run opscope aicore on the process logs",
    ),
    507036: (
        "VECTOR_CORE_TRAP_EXCEPTION",
        "a kernel ran into a trap on a vector core; run opscope aicore on the process logs",
    ),
    507037: ("CDQ_BATCH_ABNORMAL", "a CDQ batch is abnormal"),
    507038: ("DIE_MODE_CHANGE_ERROR", "changing the die mode failed"),
    507039: ("DIE_SET_ERROR", "setting the die failed"),
    507040: ("INVALID_DIEID", "invalid die id"),
    507041: ("DIE_MODE_NOT_SET", "die mode not set"),
    507042: (
        "AICORE_TRAP_READ_OVERFLOW",
        "AI Core: the out-of-memory check found a read out of bounds",
    ),
    507043: (
        "AICORE_TRAP_WRITE_OVERFLOW",
        "AI Core: the out-of-memory check found a write out of bounds",
    ),
    507044: (
        "VECTOR_CORE_TRAP_READ_OVERFLOW",
        "vector core: the out-of-memory check found a read out of bounds",
    ),
    507045: (
        "VECTOR_CORE_TRAP_WRITE_OVERFLOW",
        "vector core: the out-of-memory check found a write out of bounds",
    ),
    507046: ("STREAM_SYNC_TIMEOUT", "waiting for a stream timed out"),
    507047: ("EVENT_SYNC_TIMEOUT", "waiting for an event timed out"),
    507048: ("FFTS_PLUS_TIMEOUT", "an FFTS+ task ran too long"),
    507049: ("FFTS_PLUS_EXCEPTION", "an FFTS+ task failed; run opscope aicore on the process logs"),
    507050: ("FFTS_PLUS_TRAP_EXCEPTION", "an FFTS+ task ran into a trap"),
    507051: ("SEND_MSG", "sending a message failed"),
    507052: ("COPY_DATA", "copying data failed"),
    507053: ("DEVICE_MEM_ERROR", "fault of the device memory: hardware"),
    507054: ("HBM_MULTI_BIT_ECC_ERROR", "ECC error of several bits in the device memory: hardware"),
    507055: ("SUSPECT_DEVICE_MEM_ERROR", "the device memory is suspected"),
    507056: ("LINK_ERROR", "a link between devices failed"),
    507057: (
        "SUSPECT_REMOTE_ERROR",
        (
            "memory of another device is suspected: its process ended, the link failed, or no "
            "device has the address"
        ),
    ),
    507899: (
        "DRV_INTERNAL_ERROR",
        "internal error of the driver, mostly after an earlier fault: look for the first error",
    ),
    507900: ("AICPU_INTERNAL_ERROR", "internal error of the AI CPU"),
    507901: ("SOCKET_CLOSE", "a connection to the device was closed"),
    507902: ("AICPU_INFO_LOAD_RSP_ERR", "AI CPU: loading its information did not answer"),
    507903: ("STREAM_CAPTURE_INVALIDATED", "the capture of the stream became invalid"),
    507904: ("COMM_OP_RETRY_FAIL", "HCCL: a collective failed again when it was tried once more"),
}
_ACL: dict[int, tuple[str, str]] = {
    100000: ("INVALID_PARAM", "invalid parameter"),
    100001: ("UNINITIALIZE", "aclInit was not called"),
    100002: ("REPEAT_INITIALIZE", "aclInit was called twice"),
    100003: ("INVALID_FILE", "invalid file"),
    100004: ("WRITE_FILE", "a file cannot be written"),
    100006: ("PARSE_FILE", "a file cannot be parsed"),
    100005: ("INVALID_FILE_SIZE", "invalid size of a file"),
    100007: ("FILE_MISSING_ATTR", "a file lacks a parameter"),
    100008: ("FILE_ATTR_INVALID", "a parameter in a file is not valid"),
    100009: (
        "INVALID_DUMP_CONFIG",
        "acl.json: dump is configured wrongly; opscope prepare acl checks it",
    ),
    100010: ("INVALID_PROFILING_CONFIG", "profiling is configured wrongly"),
    100011: ("INVALID_MODEL_ID", "invalid model id"),
    100012: ("DESERIALIZE_MODEL", "the model file cannot be read"),
    100013: ("PARSE_MODEL", "the model cannot be parsed; was it made for this version?"),
    100014: ("READ_MODEL_FAILURE", "the model cannot be read"),
    100017: ("MODEL_INPUT_NOT_MATCH", "the inputs do not fit the model"),
    100018: ("MODEL_OUTPUT_NOT_MATCH", "the outputs do not fit the model"),
    100021: ("OP_INPUT_NOT_MATCH", "the operator's inputs do not fit"),
    100022: ("OP_OUTPUT_NOT_MATCH", "the operator's outputs do not fit"),
    100023: ("OP_ATTR_NOT_MATCH", "the operator's attributes do not fit"),
    100024: ("OP_NOT_FOUND", "no such operator"),
    100025: ("OP_LOAD_FAILED", "the operator could not be loaded"),
    100026: ("UNSUPPORTED_DATA_TYPE", "element type not supported"),
    100027: ("FORMAT_NOT_MATCH", "the format does not fit"),
    100029: ("KERNEL_NOT_FOUND", "no kernel for the operator"),
    100036: ("WAIT_CALLBACK_TIMEOUT", "waiting for a callback timed out"),
    100037: ("REPEAT_FINALIZE", "aclFinalize was called twice"),
    100039: (
        "COMPILING_STUB_MODE",
        "linked against the stub libraries; put the real ones first in LD_LIBRARY_PATH",
    ),
    100044: ("DUMP_ALREADY_RUN", "dumping is configured already"),
    148046: ("PROF_REPEAT_SUBSCRIBE", "profiling is subscribed already"),
    148049: ("INVALID_OPP_PATH", "ASCEND_OPP_PATH is wrong; source set_env.sh"),
    200000: ("BAD_ALLOC", "out of memory"),
    200001: ("API_NOT_SUPPORT", "not supported"),
    200002: ("INVALID_DEVICE", "invalid device"),
    200003: ("MEMORY_ADDRESS_UNALIGNED", "an address is not aligned"),
    200004: ("RESOURCE_NOT_MATCH", "resources that do not belong together"),
    200005: ("INVALID_RESOURCE_HANDLE", "invalid handle"),
    200006: ("FEATURE_UNSUPPORTED", "not supported"),
    300000: ("STORAGE_OVER_LIMIT", "over the limit"),
    500000: ("INTERNAL_ERROR", "internal error"),
    500001: ("FAILURE", "failure"),
    500002: ("GE_FAILURE", "the graph engine failed; its lines in the process log say why"),
    500003: ("RT_FAILURE", "the runtime failed; its lines in the process log say why"),
    500004: ("DRV_FAILURE", "the driver failed"),
    161001: ("PARAM_NULLPTR", "aclnn: a null pointer was given"),
    161002: ("PARAM_INVALID", "aclnn: a parameter is not allowed; the process log says which"),
    361001: ("RUNTIME_ERROR", "aclnn: a call of the runtime failed"),
    561000: ("INNER", "aclnn: internal error"),
    561001: ("INNER_INFERSHAPE_ERROR", "aclnn: the output's shape could not be inferred"),
    561002: ("INNER_TILING_ERROR", "aclnn: the tiling function failed"),
    561003: (
        "INNER_FIND_KERNEL_ERROR",
        "aclnn: no kernel binary for these types and shapes; is the kernel package installed?",
    ),
    561101: ("INNER_CREATE_EXECUTOR", "aclnn: the executor could not be made"),
    561102: ("INNER_NOT_TRANS_EXECUTOR", "aclnn: the executor was not handed over"),
    561103: (
        "INNER_NULLPTR",
        "aclnn: internal null pointer, often a shape or type that is not supported",
    ),
    561107: ("INNER_OPP_PATH_NOT_FOUND", "aclnn: ASCEND_OPP_PATH is not set; source set_env.sh"),
    561112: (
        "INNER_OPP_KERNEL_PKG_NOT_FOUND",
        "aclnn: the kernel package of this chip is not installed",
    ),
}
_UNPUBLISHED = " (seen in logs; no published table has it)"
_RETURN = {
    0x26: ("aicore exception", "a kernel failed on an AI Core"),
    0x31: ("vector core exception", "a kernel failed on a vector core"),
    0x91: (
        "task exception",
        (
            "a task of a model or an FFTS+ task failed (the model stream execute failed); an "
            "earlier line says why"
        ),
    ),
    0x25: ("aicore timeout", f"a kernel ran too long on an AI Core{_UNPUBLISHED}"),
    0x27: ("aicore trap exception", f"a kernel ran into a trap on an AI Core{_UNPUBLISHED}"),
    0x28: ("aicpu timeout", f"an AI CPU task ran too long{_UNPUBLISHED}"),
    0x2A: ("aicpu exception", f"an AI CPU task failed{_UNPUBLISHED}"),
    0x30: ("vector core timeout", f"a kernel ran too long on a vector core{_UNPUBLISHED}"),
    0x6C: ("fftsplus task exception", f"an FFTS+ task failed{_UNPUBLISHED}"),
    0x222: ("suspect remote error", f"memory of another device is suspected{_UNPUBLISHED}"),
}
# Failures that are no AI Core's, by the names the reader of lines gives them.
ELSEWHERE = {
    "SDMA": "not an AI Core error: a copy by the SDMA engine failed; its source or destination is "
    "not allocated, was freed (a group "
    "destroyed too early) or is too small, or a link between devices failed",
    "AICPU": "not an AI Core error: an AI CPU task failed; the line's soName, funcName and "
    "errcode and the device log of aicpu say which",
    "HCCL timeout": "not an AI Core error: a collective waited too long for another rank; look at "
    "the rank that stopped first",
    "out of memory": "not an AI Core error: the device's memory was not enough",
}
_VERDICT = {
    101: ("single-op", "the operator fails when it runs alone"),
    102: ("memory allocation", "an address of an argument is not in allocated memory"),
    103: ("hardware", "the environment or the hardware"),
    104: ("input data", "an input holds NaN or Inf"),
    105: (
        "memset missing",
        "an output that the kernel accumulates into was not zeroed (atomic clean)",
    ),
    106: ("args overwritten", "the arguments of the kernel changed while it ran"),
    107: ("atomic overflow", "an atomic accumulation overflowed"),
}
_HCCL = (
    "success",
    "parameter",
    "null pointer",
    "memory",
    "internal",
    "not supported",
    "not found",
    "unavailable",
    "system call",
    "timeout",
    "file",
    "TCP connect",
    "RoCE connect",
    "TCP transfer",
    "RoCE transfer",
    "runtime",
    "driver",
    "profiling",
    "CCE",
    "network",
    "try again",
    "remote",
    "suspending",
)
# E-codes of the vendor's published error code reference (CANN 6.0 to 9.0). Of one that is not in it
# at least the module and the side are known: the second letter is the module, 9000 and above are
# internal errors.
_E_CODE = re.compile(r"E[0-9A-Z]\d{4}", re.IGNORECASE)
_INTERNAL = 9000
_SCREEN_MODULES = {
    "1": "graph engine",
    "2": "fusion engine",
    "3": "AI CPU",
    "4": "TBE fusion (compiling operators)",
    "7": "vector operator plugin",
    "8": "vector operator",
    "B": "TBE pass compiler",
    "C": "auto tune",
    "D": "RL tune",
    "E": "runtime",
    "F": "LxFusion",
    "G": "AOE",
    "H": "AscendCL",
    "I": "HCCL",
    "J": "HCCP",
    "K": "profiling",
    "L": "driver",
    "M": "queue scheduling",
    "N": "DVPP",
    "O": "AMCT",
    "P": "dump",
    "Z": "operator",
}
_SCREEN = {
    "E19999": "internal error; the first error in the process log is the cause",
    "E20001": "an operator could not be compiled",
    "E20002": "an environment variable has a value that is not allowed",
    "E20007": "a fusion pass failed",
    "E40001": "an environment variable (older: a Python module) is wrong",
    "E40002": "the Python version does not fit (older: a Python function failed)",
    "E40020": "a Python module cannot be imported; install what the TBE compiler needs into this "
    "Python",
    "E40021": "an operator could not be compiled; the host log has the Python stack",
    "E40022": "an argument is not allowed",
    "E40023": "a path is not valid",
    "E40024": "a call into Python raised an exception",
    "EE1001": "an argument is not allowed; the reason stands behind the code",
    "EE1002": "waiting for a stream timed out: the time limit is too short, the network is "
    "broken, or a kernel hangs",
    "EE1011": "a parameter has a value that is not allowed; the reason stands behind the code",
    "EH0002": "a pointer is null that must not be",
    "EI0001": "an environment variable has a value that is not allowed",
    "EI0002": "waiting for another rank timed out (notify wait): a rank is slow, hung or dead; "
    "look at the rank that stopped first",
    "EI0003": "an argument of a collective is not allowed",
    "EI0004": "the rank table is not valid",
    "EI0005": "ranks call a collective with different arguments; opscope compare finds the rank "
    "that parts",
    "EI0006": "the socket to another rank was not set up in time: a rank did not start, failed "
    "before, or the network or "
    "HCCL_IF_IP / port is wrong; look at the rank that failed first, then HCCL_CONNECT_TIMEOUT",
    "EI0007": "a resource could not be allocated",
    "EI0008": "ranks use different versions of CANN",
    "EI0009": "the transport between ranks could not be set up (link, TLS switch or device "
    "network)",
    "EI0010": "devices of one server cannot reach each other (P2P)",
    "EI0011": "not enough device memory",
    "EI0012": "an SDMA task failed: a bad address or a fault of the memory or link",
    "EI0013": "a RoCE transfer failed; check the device network (hccn_tool)",
    "EI0014": "the rank table does not fit this job",
    "EI0015": "the rank table could not be negotiated between ranks",
    "EI0016": "the configuration is wrong",
    "EI0017": "the rank table is wrong",
    "EI0018": "a transfer over the unified bus failed",
    "EI0019": "an address or port could not be bound, mostly because a process that is left over "
    "holds it",
    "EI0020": "an address or port could not be bound, mostly because a process that is left over "
    "holds it",
    "EJ0001": "the process could not be initialised, mostly because the last training process "
    "still runs: end it and wait ten seconds",
    "EL0001": "a device is absent or abnormal; npu-smi info",
    "EL0002": "invalid device id",
    "EL0003": "an argument is not allowed",
    "EL0004": "memory cannot be allocated: too little is free",
    "EL0005": "the resource is busy",
    "EL0006": "too few resources",
    "EL0007": "no permission",
    "EL0008": "no event left",
    "EL0009": "no stream left",
    "EL0010": "no notify left",
    "EL0011": "no model left",
    "EL0012": "a service queue is full",
    "EL0013": "no CDQM left",
    "EL0014": "the operation is not supported",
    "EL0015": "a device was accessed in a way that is not allowed",
    "EL0016": "a parameter has a value that is not allowed; the reason stands behind the code",
    "EZ1001": "aclnn: a parameter is not allowed; the process log says which",
    "EZ2001": "AI Core error; the lines behind it name the kernel: opscope aicore reads them",
    "EZ9010": "no parser is registered for the operator: it is not supported",
    "EZ9903": "aclnn: a call of the runtime failed; the process log says which",
    "EZ9999": "internal error of an operator or the AI Core; the lines below it name the kernel: "
    "opscope aicore reads them",
}
_ACL_LIKE = 999_999  # decimal codes of AscendCL have six digits
_MOST = 64
_LONGEST = 40  # characters of a number
_NEAR = 1000  # distance within which a known code may have been meant
_INNER = 0x7150000  # the runtime's inner codes: 0x715, then the return code


def return_code(code: int) -> str | None:
    """Words for a task's return code (0x26) or a runtime inner code that holds one (0x7150026);
    None for one without.
    """
    inner = code - _INNER if _INNER <= code < _INNER + 0x1000 else code
    return _RETURN[inner][0] if inner in _RETURN else None


def acl_code(code: int) -> Meaning | None:
    """Meaning of an AscendCL, runtime or aclnn code; None for one not in the tables."""
    if code in _RT:
        return Meaning(str(code), "runtime", f"ACL_ERROR_RT_{_RT[code][0]}", _RT[code][1])
    if code in _ACL:
        family = "aclnn" if _ACL[code][1].startswith("aclnn") else "AscendCL"
        return Meaning(
            str(code),
            family,
            f"{'ACLNN_ERR' if family == 'aclnn' else 'ACL_ERROR'}_{_ACL[code][0]}",
            _ACL[code][1],
        )
    return None


def screen_code(code: str) -> Meaning | None:
    """Meaning of an E-code as the screen shows it (EZ9999, EI0006, E19999); None for what has not
    the form of one.
    """
    if _E_CODE.fullmatch(code) is None:
        return None
    code = code.upper()
    text = _SCREEN.get(code)
    if text is None and int(code[2:]) >= _INTERNAL:
        text = "internal error; its lines in the process log say why"
    elif text is None:
        text = (
            "not in the table, an error of the input or the environment; the lines below it say "
            "more"
        )
    module = _SCREEN_MODULES.get(code[1], "module not known")
    return Meaning(code, "screen", code, f"{module}: {text}")


def explain_status(status: int) -> tuple[Meaning, ...]:
    """Overflow status of an AI Core bit by bit (272 is 0x10 and 0x100)."""
    meanings = [
        Meaning(hex(bit), "overflow status", f"bit {bit.bit_length() - 1}", word)
        for bit, word in CORE_WORDS.items()
        if status & bit
    ]
    rest = status & ~sum(CORE_WORDS)
    if rest:
        meanings.append(
            Meaning(
                hex(rest), "overflow status", "not documented", "bits that no public source names"
            )
        )
    return tuple(meanings) or (Meaning("0x0", "overflow status", "none", "no overflow"),)


def explain_code(text: str) -> tuple[Meaning, ...]:
    """Every meaning a code may have: error bits, AscendCL, HCCL, return codes, E-codes; several are
    separated by commas or blanks.

    Several small decimal numbers are the bits of Ascend 950, which prints them so. UsageError for
    what is no code.
    """
    parts = [part for part in re.split(r"[,\s]+", text.strip(" ()")) if part] or [text]
    if 1 < len(parts) <= 3 and all(part == "0" or part.lower().startswith("0x") for part in parts):
        return tuple(
            explain_error(*map(_number, parts))
        )  # the classic words code0, code1, code2 of an errcode
    if len(parts) > 1 and all(part.isdecimal() and len(part) < 4 for part in parts):
        return tuple(_bit(int(part), ASCEND950) for part in parts)
    return tuple(meaning for part in parts[:_MOST] for meaning in _one(part))


def _one(text: str) -> tuple[Meaning, ...]:
    """The meanings of one code."""
    meaning = screen_code(text)
    if meaning is not None:
        return (meaning,)
    if text.lower().startswith("hccl:"):
        return _hccl(text[5:])
    number = _number(text)
    meanings = tuple(_meanings(number, hexadecimal=text.lower().startswith("0x")))
    return meanings or (_unknown(text, number),)


def _unknown(text: str, code: int) -> Meaning:
    """A number that no table has, with the nearest ones that are known."""
    nearest = sorted({**_RT, **_ACL}, key=lambda known: (abs(known - code), known))[:2]
    near = ""
    if abs(nearest[0] - code) <= _NEAR:
        meanings = filter(None, map(acl_code, sorted(nearest)))
        near = "; nearest known: " + ", ".join(f"{each.code} ({each.text})" for each in meanings)
    return Meaning(text, "unknown", text, f"in none of the tables{near}")


def _number(text: str) -> int:
    try:
        if len(text) > _LONGEST:
            raise ValueError
        return int(text, 10 if text.isdecimal() else 0)
    except ValueError:
        raise UsageError(
            f"{text[:80]!r} is no code: write 0x800000, 507015, 95,330 (Ascend 950), EI0006 "
            "or hccl:9"
        ) from None


def _hccl(text: str) -> tuple[Meaning, ...]:
    if not text.isdecimal() or len(text) > 9 or int(text) >= len(_HCCL):
        raise UsageError(f"hccl:{text[:80]} is no HCCL result; they are 0 to {len(_HCCL) - 1}")
    return (Meaning(text, "HCCL", f"HCCL result {text}", _HCCL[int(text)]),)


def _meanings(code: int, *, hexadecimal: bool) -> Iterator[Meaning]:
    if code < 0:
        raise UsageError(f"{code} is no code: it is negative")
    acl = acl_code(code)
    if acl is not None:
        yield acl
        return
    words = return_code(code)
    if words is not None:
        inner = code & 0xFFF
        yield Meaning(hex(code), "return code", words, _RETURN[inner][1])
        if code != inner:
            return
    if code in _VERDICT and not hexadecimal:
        yield Meaning(str(code), "msaicerr", *_VERDICT[code])
    if hexadecimal or code == 0 or code > _ACL_LIKE:
        yield from explain_error(code)
    elif code < 384:
        yield _bit(code, ASCEND950)
        yield _bit(code, CLASSIC)


def explain_error(*words: int) -> Iterator[Meaning]:
    """The bits of a classic error code; code 0 is a timeout or trap."""
    numbers = registers.bits_of(words)
    if not numbers:
        yield Meaning("0", "AI Core error", "timeout or trap", CAUSES[TIMEOUT])
    for number in numbers:
        yield _bit(number, CLASSIC)


def _bit(number: int, numbering: str) -> Meaning:
    bit = registers.bit(number, numbering)
    family = "AI Core error" if numbering == CLASSIC else "AI Core error, Ascend 950"
    return Meaning(f"bit {number}", family, bit.name, f"{bit.meaning}; {bit.cause}")
