# SPDX-License-Identifier: Apache-2.0
"""The files a conversion writes: their documented names, and the bytes in them."""

from __future__ import annotations

import errno
import io
import os
import uuid
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.formats.cann import torchfile
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.names import MAPPING
from opscope.narrow import is_narrow, widened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opscope.arrays import Array
    from opscope.formats.cann.wire import Span

NPY, BIN, MSNPY, PT = "npy", "bin", "msnpy", "pt"
KINDS = (NPY, BIN, MSNPY, PT)
MAX_NAME = 255
_COPY_FROM = 1 << 20
_MSNPY_FIELDS = 5


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor ready to be written.

    dump is the dump file's base name, op_name the full name in its header; shape is the one the
    name gives, None for a name without (a plain .npy); dtype names the element type; layout is that
    of the values. source, where given, is the file whose bytes from span on are those of the
    values, so that the kernel can copy them.
    """

    dump: str
    op_name: str
    side: str
    index: int
    values: Any
    shape: tuple[int, ...] | None
    dtype: str
    layout: str
    source: str | None = None
    span: Span | None = None


def name_of(piece: Piece, kind: str) -> str:
    """Documented name of the file for a tensor."""
    stem = f"{piece.dump}.{piece.side}.{piece.index}"
    if kind == BIN:
        shape = piece.values.shape if piece.shape is None else piece.shape
        return f"{stem}.{'_'.join(map(str, shape))}.{piece.dtype}.{piece.layout}.bin"
    if kind == MSNPY:
        fields = piece.dump.split(".")
        if len(fields) == _MSNPY_FIELDS and piece.op_name:
            fields[1] = piece.op_name.split("/")[-1]
        return f"{'.'.join(fields)}.{piece.side}.{piece.index}.{piece.layout}.npy"
    if piece.shape is not None:
        return f"{stem}.{'x'.join(map(str, piece.shape))}.{kind}"
    return f"{stem}.{kind}"


class Output:
    """A directory of converted files; names too long for it are replaced and listed in its
    mapping.csv.

    known says what dump files are called that lie under a number (their directory's mapping.csv).
    files counts what was written.
    """

    def __init__(self, directory: Path, known: Mapping[str, str] | None = None) -> None:
        self.files = 0
        self._directory = os.fspath(directory)
        self._known = known or {}
        self._lock = Lock()

    def known_as(self, name: str) -> str:
        """What a dump file of this base name is called."""
        return self._known.get(name, name)

    def tensor(self, piece: Piece, kind: str) -> Path:
        """Write one tensor; answers where. Raises RefusedError (WRITE, DATA_TYPE)."""
        values: Array = piece.values
        if piece.dump in self._known:
            piece = msgspec.structs.replace(piece, dump=self._known[piece.dump])
        path = self._path(name_of(piece, kind))
        try:
            if kind == PT:
                if not torchfile.writable(values.dtype):
                    raise RefusedError(Code.DATA_TYPE, f"torch has no type for {piece.dtype}")
                with open(path, "wb", opener=_fresh) as file:
                    torchfile.write(file, values)
            elif kind != BIN and is_narrow(values.dtype):
                numbers = widened(values)
                self._write(path, _npy_header(numbers), numbers)
            else:
                header = b"" if kind == BIN else _npy_header(values)
                if not _copied(path, header, piece):
                    self._write(path, header, values)
        except OSError as error:
            raise RefusedError(
                Code.WRITE, f"{path}: cannot be written: {error.strerror or error}"
            ) from error
        return self._counted(path)

    def raw(self, name: str, data: Any) -> Path:
        """Write bytes under a name that begins with that of a dump file."""
        stem, _, rest = name.partition(".")
        path = self._path(f"{self._known.get(stem, stem)}.{rest}")
        try:
            self._write(path, data, None)
        except OSError as error:
            raise RefusedError(
                Code.WRITE, f"{path}: cannot be written: {error.strerror or error}"
            ) from error
        return self._counted(path)

    def _counted(self, path: str) -> Path:
        with self._lock:
            self.files += 1
        return Path(path)

    @staticmethod
    def _write(path: str, header: Any, values: Array | None) -> None:
        with open(path, "wb", opener=_fresh) as file:
            file.write(header)
            if values is not None and values.size:
                file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def _path(self, name: str) -> str:
        # One component, whatever a dump's header said.
        name = name.replace("/", "_").replace("\\", "_").replace("\0", "_")
        if len(name.encode("utf-8", "surrogateescape")) >= MAX_NAME:
            short = uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + name[name.rindex(".") :]
            listing = os.path.join(self._directory, MAPPING)  # noqa: PTH118 - the directory is a string here
            with self._lock, open(listing, "a", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
                file.write(f"{short},{name}\n")
            name = short
        return f"{self._directory}/{name}"


def _copied(path: str, header: bytes, piece: Piece) -> bool:
    """Let the kernel copy the bytes; False where there is no source, or the system cannot."""
    if piece.source is None or piece.span is None or piece.span.length < _COPY_FROM:
        return False
    if not hasattr(os, "sendfile"):
        return False
    at, left = piece.span.offset, piece.span.length
    with open(path, "wb", buffering=0, opener=_fresh) as target, FileIO(piece.source) as source:
        target.write(header)
        while left:
            try:
                sent = os.sendfile(target.fileno(), source.fileno(), at, left)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK, errno.EOPNOTSUPP):
                    return False
                raise
            if sent == 0:
                raise OSError(errno.EIO, "its source became shorter while it was copied")
            at, left = at + sent, left - sent
    return True


def _fresh(path: str, flags: int) -> int:
    """Open for writing; a link that waits there is taken away, not followed."""
    flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    os.unlink(path)  # noqa: PTH108 - the path is a string here
    return os.open(path, flags, 0o666)


def _npy_header(values: Array) -> bytes:
    buffer = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(values.dtype),
        "fortran_order": False,
        "shape": values.shape,
    }
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()
