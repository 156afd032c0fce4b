# SPDX-License-Identifier: Apache-2.0
"""Opening a table file of another column order or minor schema: through a temporary copy with the
columns of this one.

Columns the file does not have are null in the copy, columns this schema does not know are left out.
nanoarrow is not
asked to read the file: it crashes on some damaged ones, and the projecting reader checks every
offset.
"""

from __future__ import annotations

from pathlib import Path

from opscope.errors import FormatError
from opscope.run.arrow import column_values, encode_columns, table_schema
from opscope.run.schema import TABLES
from opscope.run.store.ipc import IpcFile
from opscope.run.store.tables import batch_bytes, schema_bytes


def open_table(path: Path, table: str) -> IpcFile:
    """A table file with the columns of the schema; FormatError when it cannot be read at all."""
    file = IpcFile(path)
    wanted = TABLES[table]
    if list(file.types.items()) == list(wanted.items()):
        return file
    for name, kind in wanted.items():
        if file.types.get(name, kind) != kind:
            raise FormatError(path, f"column {name} has type {file.types[name]}, not {kind}")
    import tempfile

    with tempfile.TemporaryFile() as copy:  # the map outlives the file object
        copy.write(schema_bytes(table_schema(table)))
        for batch in file.batches:
            columns = [
                column_values(file.column(batch, name))
                if name in file.types
                else [None] * batch.rows
                for name in wanted
            ]
            copy.write(batch_bytes(encode_columns(wanted, columns)))
        copy.flush()
        found = IpcFile(path, copy)
    found.torn, found.torn_reason = file.torn, file.torn_reason
    return found
