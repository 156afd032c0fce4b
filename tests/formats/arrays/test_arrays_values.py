# SPDX-License-Identifier: Apache-2.0
"""Reading and writing single files of arrays: exact round trips, hostile files, and nothing ever
executed.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opscope.errors import FormatError, MissingValueError, OpscopeError, UsageError
from opscope.formats.archives import read_npz, read_safetensors, safetensors_index
from opscope.formats.loading import load_array
from opscope.formats.npy import npy_dtype, parse_npy_header, read_npy, read_npy_header
from opscope.formats.pt import PtFile, read_pt
from opscope.formats.text_arrays import read_csv, read_txt, write_csv, write_txt
from opscope.formats.writing.array_files import write_bin, write_npy, write_pt, write_safetensors
from opscope.narrow import dtype, name_of
from opscope.run.dtypes import dtype_of, dtype_of_numpy

NUMPY = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
)
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
SHAPES = ((), (0,), (3,), (2, 0, 3), (2, 3), (1, 2, 3))


def arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of every type, with everything their bits can say but the payload of a NaN."""

    def narrow(name: str) -> st.SearchStrategy[np.ndarray[Any, Any]]:
        kind = np.dtype(getattr(ml_dtypes, name))
        raw = np.uint16 if kind.itemsize == 2 else np.uint8
        theirs = hnp.arrays(
            raw, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
        ).map(lambda values: _plain(values.view(kind)))
        return st.one_of(theirs, theirs.map(lambda values: values.view(dtype(name))))

    wide = st.sampled_from(NUMPY).flatmap(
        lambda name: hnp.arrays(
            name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
        )
    )
    return st.one_of(wide.map(_plain), *map(narrow, NARROW))


def _plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same with canonical NaNs."""
    found = np.array(values)
    if found.dtype.kind in "fV":
        found[np.isnan(found)] = np.array(np.nan).astype(found.dtype)
    elif found.dtype.kind == "c":
        found[np.isnan(found.real) | np.isnan(found.imag)] = 0
    return found


def same(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    return (
        name_of(left.dtype) == name_of(right.dtype)
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


@settings(max_examples=150, deadline=None)
@given(arrays())
def test_every_kind_of_file_gives_back_what_was_written(values: np.ndarray[Any, Any]) -> None:
    import tempfile

    true = dtype_of_numpy(values.dtype)
    with tempfile.TemporaryDirectory() as place:
        for suffix, write in (
            ("npy", write_npy),
            ("bin", write_bin),
            ("txt", write_txt),
            ("csv", write_csv),
        ):
            path = Path(place) / f"a.{suffix}"
            write(path, values)
            found = load_array(path, "", true)
            if suffix in {"bin", "csv"} and values.size == 0:
                assert found.size == 0
            else:
                assert same(found.reshape(values.shape), values), suffix
        if true.safetensors is not None:
            write_safetensors(Path(place) / "a.safetensors", {"x": values, "y": values})
            assert same(load_array(Path(place) / "a.safetensors", "y", true), values)


@pytest.mark.parametrize("name", [*NUMPY, *NARROW])
@pytest.mark.parametrize("shape", SHAPES)
def test_pt_files_are_torchs(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Written by us and read by torch, written by torch and read by us, without torch on our
    side.
    """
    torch = pytest.importorskip("torch")
    from tests.oldest import IS_OLDEST

    if IS_OLDEST and name in {"uint16", "uint32", "uint64"}:
        pytest.skip("torch 2.4: these are written, but neither loaded as weights nor computed with")
    kind = np.dtype(getattr(ml_dtypes, name, name))
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
    write_pt(tmp_path / "ours.pt", values)
    loaded = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert (tuple(loaded.shape), str(loaded.dtype)) == (shape, f"torch.{name}")
    assert (
        loaded.to(torch.complex128).flatten().tolist()
        == values.astype(np.complex128).ravel().tolist()
    )
    torch.save(loaded, tmp_path / "theirs.pt")
    assert same(np.array(read_pt(tmp_path / "theirs.pt")), values)


def test_views_parameters_and_checkpoints_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0).reshape(3, 4)
    held = {
        "view": base[1:, ::2].T,
        "all": [base, torch.nn.Parameter(base.bfloat16())],
        "other": (1, None, 2.5, "text", torch.Size([3]), torch.float16),
    }
    torch.save(held, tmp_path / "c.pt")
    file = PtFile(tmp_path / "c.pt")
    found = {name: np.array(file.values(saved)) for name, saved in file.tensors()}
    assert found["view"].tolist() == base[1:, ::2].T.tolist()
    assert found["all.1"].dtype == dtype("bfloat16")
    assert set(found) == {"view", "all.0", "all.1"}
    with pytest.raises(FormatError, match="holds several tensors"):
        read_pt(tmp_path / "c.pt")
    with pytest.raises(MissingValueError):
        load_array(tmp_path / "c.pt", "lost", None)


def test_a_pickle_in_a_pt_is_never_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str, str]]:
            return (open, (str(mark), "w"))

    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Evil(), protocol=2))
    assert PtFile(tmp_path / "evil.pt").tree is not None
    assert list(PtFile(tmp_path / "evil.pt").tensors()) == []
    with pytest.raises(FormatError, match="no tensors"):
        read_pt(tmp_path / "evil.pt")
    assert not mark.exists()


def _pt(path: Path, data: bytes, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", data)
        for name, content in members.items():
            archive.writestr(f"x/{name}", content)
    return path


BOMB = b"\x80\x02](" + b"".join(b"](" + b"h\x00" * 9 + b"eq\x00" for _ in range(40)) + b"e."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cut short"),
        (b"\x80\x02i", "has no place"),
        (b"\x80\x02t.", "without a beginning"),
        (b"\x80\x02h\x05.", "never remembered"),
        (b"\x80\x02X\xff\xff\xff\x7f", "cut short"),
        (b"\x80\x02.", "more than it put down"),
        (b"\x80\x02}K\x01s.", "more than it put down"),
        (b"\x80\x02c" + b"a" * 600, "without an end"),
        (b"\x80\x02]q\x00h\x00a.", "no tensors"),
        (BOMB, "never remembered"),
    ],
)
def test_mangled_pickles_are_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=said):
        read_pt(_pt(tmp_path / "a.pt", data))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                b"(",
                b"t",
                b"]",
                b"}",
                b"a",
                b"s",
                b"u",
                b"e",
                b"q\x00",
                b"h\x00",
                b"K\x07",
                b"Q",
                b"R",
                b"b",
                b")",
                b"X\x01\x00\x00\x00a",
                b"ctorch._utils\n_rebuild_tensor_v2\n",
                b"ctorch\nFloatStorage\n",
                b"\x88",
                b"N",
                b"\x8a\x09" + b"\xff" * 9,
            ]
        ),
        max_size=40,
    )
)
def test_any_opcodes(parts: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        try:
            file = PtFile(_pt(Path(place) / "a.pt", b"\x80\x02" + b"".join(parts) + b"."))
            for _, saved in file.tensors():
                file.values(saved)
        except OpscopeError:
            pass


def test_storages_that_are_too_small_or_compressed(tmp_path: Path) -> None:
    values = np.arange(100, dtype=np.float32)
    write_pt(tmp_path / "a.pt", values)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(tmp_path / "short.pt", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:40] if name.endswith("data/0") else content)
    with pytest.raises(FormatError, match="holds 40 of 400 bytes"):
        read_pt(tmp_path / "short.pt")
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(FormatError, match="compressed or encrypted"):
        read_pt(tmp_path / "bomb.pt")


@pytest.mark.parametrize("count", [60, 30_000])
def test_values_of_a_big_endian_machine(count: int, tmp_path: Path) -> None:
    values = np.arange(count, dtype=np.float32).reshape(-1, 3)
    write_pt(tmp_path / "a.pt", values)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    changed = {"byteorder": b"big", "data/0": values.byteswap().tobytes()}
    with zipfile.ZipFile(tmp_path / "big.pt", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, changed.get(name.partition("/")[2], content))
    assert np.array_equal(read_pt(tmp_path / "big.pt"), values)


def test_old_torch_files_say_what_to_do(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(2), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(FormatError, match=r"before 1\.6; load it there and save it again"):
        read_pt(tmp_path / "old.pt")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"\x93NUMPY\x01\x00\x04\x00x", "cut short inside"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "claims 4294967295 bytes"),
        (b"\x93NUMPY\x01\x00\x05\x00{}   ", "does not accept"),
        (b"not numpy", "magic"),
        (b"\x93NUMPY", "cut short"),
    ],
)
def test_npy_headers_that_are_none(header: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_npy_header(header, "a.npy")


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "pickled objects"),
        ("{'descr': '<q9', 'fortran_order': False, 'shape': (1,), }", "not one of NumPy's"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9999999999," * 20 + "), }",
            "beyond any tensor",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387903,), }",
            "cut short",
        ),
    ],
)
def test_npy_headers_that_lie(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(_header(text) + b"\0" * 64)
    with pytest.raises(FormatError, match=said):
        read_npy_header(tmp_path / "a.npy")


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=120)
    | st.text(alphabet="{}'descr:<f48|bO(),TrueFalse shape_ortan 0123456789", max_size=90).map(
        _header
    )
)
def test_any_npy_header(data: bytes) -> None:
    try:
        parse_npy_header(data, "a.npy")
    except FormatError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_large_arrays_are_mapped_and_orders_kept(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(1 << 19, dtype=np.float32).reshape(512, 1024))
    np.save(tmp_path / "a.npy", values)
    found = read_npy(tmp_path / "a.npy")
    assert isinstance(found.base, np.memmap) or isinstance(found, np.memmap)
    assert np.array_equal(found, values)
    np.save(tmp_path / "big.npy", np.arange(5, dtype=">i4"))
    assert read_npy(tmp_path / "big.npy", true=dtype_of("int32")).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(FormatError, match="holds int32 where float16 was announced|holds >i4"):
        read_npy(tmp_path / "big.npy", true=dtype_of("float16"))


def test_npz_members_and_bombs(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), y=np.zeros(5))
    assert read_npz(tmp_path / "a.npz", "x").tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(MissingValueError):
        read_npz(tmp_path / "a.npz", "z")
    (tmp_path / "torn.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-60])
    with pytest.raises(FormatError, match="not a zip"):
        read_npz(tmp_path / "torn.npz", "x")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 27,)}
    )
    with (
        zipfile.ZipFile(
            tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1
        ) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(head.getvalue())
        for _ in range(32):
            member.write(b"\0" * (1 << 24))
    with pytest.raises(FormatError, match="unpacks .* not read"):
        read_npz(tmp_path / "bomb.npz", "x")


@pytest.mark.parametrize(
    "header",
    [
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}}',
        b'{"x": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]}}',
        b'{"x": 3}',
        b"[]",
        b"{",
        b"",
    ],
)
def test_safetensors_headers_that_lie(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(FormatError, match="a.safetensors"):
        safetensors_index(path)
    path.write_bytes(b"\xff" * 8 + header)
    with pytest.raises(FormatError, match="header of"):
        read_safetensors(path, "x")


def test_safetensors_are_those_of_the_library(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    values = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(3, dtype=np.int64)}
    write_safetensors(tmp_path / "ours.safetensors", values)
    assert {
        name: found.tolist() for name, found in load_file(tmp_path / "ours.safetensors").items()
    } == {"a": values["a"].tolist(), "b": 3}
    save_file(values, tmp_path / "theirs.safetensors")
    assert same(np.array(read_safetensors(tmp_path / "theirs.safetensors", "a")), values["a"])


def test_text_that_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# shape=(2, 2) dtype=float32\n1\n2\n3\n")
    with pytest.raises(FormatError, match="3 elements where"):
        read_txt(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("1 2\nthree")
    with pytest.raises(FormatError, match="not numbers"):
        read_txt(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("1 2\n3 4")
    assert read_txt(tmp_path / "a.txt", true=dtype_of("int8")).tolist() == [1, 2, 3, 4]
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match="without the header"):
        read_csv(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("i0,value:int8\n7,300\n")
    with pytest.raises(FormatError, match=r"not numbers|elements where"):
        read_csv(tmp_path / "a.csv")


def test_types_that_torch_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torch has no type"):
        write_pt(tmp_path / "a.pt", np.zeros(2, dtype("float8_e3m4")))


def test_bfloat16_as_mindspore_writes_it(tmp_path: Path) -> None:
    """MindSpore 2.10 writes a letter of its own into the header, and the bare elements behind
    it.
    """
    values = np.array([1.5, -3.0, np.inf, 3.3e38], ml_dtypes.bfloat16)
    plain = tmp_path / "plain.npy"
    np.save(plain, values.view(np.uint16))
    path = tmp_path / "Mul.Default_Mul-op0.0.0.1795385338874763.input.1.DefaultFormat.BFloat16.npy"
    path.write_bytes(plain.read_bytes().replace(b"'<u2'", b"'<E2'"))
    assert npy_dtype(read_npy_header(path), path).name == "bfloat16"
    for true in (None, dtype_of("bfloat16")):
        read = read_npy(path, true=true)
        assert read.dtype == dtype("bfloat16")
        assert read.tobytes() == values.tobytes()


@pytest.mark.parametrize("descr", ["<Z2", "<E4", "<E0", "|X9", "<E"])
def test_a_letter_that_nobody_knows_is_no_type(descr: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(3, np.uint16))
    path.write_bytes(path.read_bytes().replace(b"'<u2'", f"'{descr}'".encode()))
    with pytest.raises(FormatError):
        npy_dtype(read_npy_header(path), path)
