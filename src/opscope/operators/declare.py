# SPDX-License-Identifier: Apache-2.0
"""Declaring what an operator is that opscope does not know: in the program, or in a file of
operators, which has the columns of the catalogue's own sheets.

    mylib::scale          pointwise tolerance=arithmetic
    mylib::noise          random
    mylib::gate.default   guards          one overload
    MyCustomOp            moves           a name without a schema
"""

from __future__ import annotations

from pathlib import Path

from opscope.errors import UsageError
from opscope.operators.catalogue import declare_rows
from opscope.operators.rows import checked_name, checked_row, read_sheet
from opscope.operators.told import Rows

_LARGEST = 1 << 20  # bytes of a file of operators


def declare(op: str, /, **traits: bool | str) -> None:
    """Say what an operator is (docs/operators.md has the traits), for all that this process records
    and judges from now on; it overrules what opscope knows of it.

    op is its name, "mylib::scale" for all overloads. Recorded runs keep what was declared of the
    operators that they met. UsageError for a trait that there is not.
    """
    try:
        declare_rows({checked_name(op): checked_row(traits)})
    except ValueError as error:
        raise UsageError(f"declare({op!r}): {error}") from error


def read_operators(path: str | Path) -> Rows:
    """The rows of a file of operators; UsageError names the file and the line."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{name}: more than {_LARGEST >> 20} MiB; no file of operators")
        sheet = read_sheet(data.decode("utf-8-sig").splitlines(), name)
        if sheet.patterns:
            raise ValueError(f"{name}: a line names one operator; patterns are not read")
        return {checked_name(op): checked_row(row) for op, row in sheet.rows.items()}
    except OSError as error:
        raise UsageError(
            f"{name}: {error.strerror or error}; --operators needs a file that can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8 text (byte {error.start})") from error
    except ValueError as error:
        text = str(error)
        raise UsageError(text if text.startswith(name) else f"{name}: {text}") from error
