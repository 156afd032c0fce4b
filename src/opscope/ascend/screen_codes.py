# SPDX-License-Identifier: Apache-2.0
"""E-codes that CANN shows on the screen (EZ9999, EI0006, E19999), in words.

The table holds codes of the vendor's published error code reference (CANN 6.0 to 9.0); the advice
is ours. Of a code that is not in it at least the module and the side are known: the second letter
is the module, 9000 and above are internal errors.
"""

from __future__ import annotations

import re

E_CODE = re.compile(r"E[0-9A-Z]\d{4}", re.IGNORECASE)
_INTERNAL = 9000
_MODULES = {
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
_KNOWN = {
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


def module_of(code: str) -> str:
    """The module whose letter a code has, as far as that is published."""
    return _MODULES.get(code[1:2].upper(), "module not known")


def words(code: str) -> str:
    """What an E-code says; of one that is not in the table its module and whether the error is an
    internal one.
    """
    code = code.upper()
    known = _KNOWN.get(code)
    if known is None and int(code[2:]) >= _INTERNAL:
        known = "internal error; its lines in the process log say why"
    return (
        f"{module_of(code)}: "
        f"{known or 'not in the table, an error of the input or the environment; the lines below it say more'}"  # noqa: E501
    )
