# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the manuals' converter, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum

from opscope.errors import OpscopeError


class Code(IntEnum):
    """Exit codes as documented for msaccucmp; those that no command here can end with are left
    out.
    """

    OK = 0
    UNKNOWN = 1
    NO_DUMP_FILE = 2
    PATH = 3
    PARAMETER = 6
    DUMP_DATA = 11
    INDEX = 12
    WRITE = 19
    DATA_TYPE = 21
    FORMAT = 22
    SHAPE = 23
    CONVERT_FUNCTION = 26
    ALGORITHM = 31
    FRACTAL_NZ = 34
    OVERFLOW_TYPE = 35
    OVERFLOW_STATUS = 36
    NANO = 47


class RefusedError(OpscopeError):
    """Something the converter was asked for cannot be done; code is the documented exit code."""

    def __init__(self, code: Code, reason: str) -> None:
        self.code = code
        super().__init__(reason)
