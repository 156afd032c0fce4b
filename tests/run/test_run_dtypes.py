# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from opscope import narrow
from opscope.errors import UsageError
from opscope.run.dtypes import (
    DTYPES,
    dtype_of,
    dtype_of_numpy,
    find_dtype,
)


def test_names_are_unique_and_spell_themselves() -> None:
    names = [entry.name for entry in DTYPES]
    assert len(set(names)) == len(names)
    assert all(dtype_of(name).name == name for name in names)


def test_numpy_types_have_the_width_they_claim() -> None:
    for entry in DTYPES:
        if entry.numpy is not None:
            assert entry.to_numpy().itemsize == entry.itemsize, entry.name


NEWER = {"float8_e8m0fnu", "float4_e2m1fn_x2", "int4", "int2", "int1"}  # than torch 2.4


def test_every_torch_name_is_one_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from tests.oldest import IS_OLDEST

    for entry in DTYPES:
        if entry.torch is not None and not (IS_OLDEST and entry.name in NEWER):
            assert isinstance(getattr(torch, entry.name), torch.dtype)
            if not entry.name.startswith("q"):
                assert getattr(torch, entry.name).itemsize == max(entry.itemsize, 1)


def test_every_torch_type_of_whole_bytes_has_an_entry() -> None:
    torch = pytest.importorskip("torch")
    spelled = {
        str(kind).removeprefix("torch.")
        for kind in vars(torch).values()
        if isinstance(kind, torch.dtype)
    }
    missing = {name for name in spelled if find_dtype(name) is None}
    assert {name for name in missing if not name.startswith(("bit", "int", "uint"))} == set()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.half", "float16"),
        ("Float16", "float16"),
        ("DT_FLOAT16", "float16"),
        ("FLOAT", "float32"),
        ("torch.float", "float32"),
        ("BF16", "bfloat16"),
        ("BFloat16", "bfloat16"),
        ("mindspore.Int64", "int64"),
        ("U8", "uint8"),
        ("F8_E4M3", "float8_e4m3fn"),
        ("DT_BOOL", "bool"),
        ("C64", "complex64"),
        ("torch.cfloat", "complex64"),
        ("long", "int64"),
        ("hif8", "hifloat8"),
        ("DT_INT4", "int4"),
    ],
)
def test_spellings_of_all_worlds(spelling: str, name: str) -> None:
    assert dtype_of(spelling).name == name


@pytest.mark.parametrize("name", sorted(narrow.FORMATS))
def test_bfloat16_and_fp8_stay_true(name: str) -> None:
    assert dtype_of(name).to_numpy() == narrow.dtype(name)
    assert dtype_of_numpy(np.dtype(getattr(ml_dtypes, name))) == dtype_of(name)


def test_numpy_round_trip() -> None:
    for entry in DTYPES:
        if entry.numpy is not None and not entry.name.startswith("q"):
            assert dtype_of_numpy(entry.to_numpy()) == entry


def test_types_without_numpy_say_so() -> None:
    for name in ("int4", "uint1", "hifloat8", "complex32"):
        with pytest.raises(UsageError, match="raw bytes"):
            dtype_of(name).to_numpy()


def test_unknown_types_are_refused() -> None:
    assert find_dtype("float13") is None
    with pytest.raises(UsageError, match="float13"):
        dtype_of("float13")
    with pytest.raises(UsageError, match="object"):
        dtype_of_numpy(np.dtype(object))


def test_packed_bytes() -> None:
    assert [
        dtype_of(name).nbytes(5)
        for name in ("int4", "uint1", "float32", "complex32", "float6_e3m2")
    ] == [3, 1, 20, 20, 4]


def test_cann_numbers() -> None:
    assert dtype_of("bfloat16").proto == 27
    assert dtype_of("float8_e4m3fn").ge == 36
    assert len({entry.proto for entry in DTYPES if entry.proto is not None}) == sum(
        entry.proto is not None for entry in DTYPES
    )
