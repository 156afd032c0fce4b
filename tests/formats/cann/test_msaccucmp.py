# SPDX-License-Identifier: Apache-2.0
"""opscope-msaccucmp: the lines of the manuals, the names of the files, the exit codes, and
--compat.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cann_dumps import classic_record, dump, modern_record, operator, raw

from opscope.cli.msaccucmp import main
from opscope.formats import hifloat8, layouts
from opscope.formats.cann import compat, dumpfile
from opscope.formats.cann.message import Attribute, BufferEntry, DumpData, SpaceEntry

DATA = Path(__file__).parent / "data"
CONCAT = DATA / "ConcatV2D.concatv2.0.0.550288648"
SOURCE = Path(__file__).resolve().parents[3] / "src"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_line_of_the_manual(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", "-d", CONCAT, "-out", tmp_path / "result", "-v", "2") == 0
    assert files(tmp_path / "result") == [
        f"{CONCAT.name}.{io}.npy" for io in ("input.0", "input.1", "output.0")
    ]
    values = [np.load(tmp_path / "result" / name) for name in files(tmp_path / "result")]
    assert [value.shape for value in values] == [(1, 14652), (1, 30), (1, 14682)]
    np.testing.assert_array_equal(np.concatenate(values[:2], 1), values[2])
    assert values[2].dtype == np.float16
    assert capsys.readouterr().out == f"1 dump file converted into {tmp_path / 'result'}\n"


def test_a_directory_and_a_list(tmp_path: Path) -> None:
    one = operator(tmp_path / "in" / "Add.a.1.2.3", outputs=[raw(b"ab", (2,), 4)])
    two = operator(tmp_path / "in" / "Add.b.1.2.4", outputs=[raw(b"cd", (2,), 4)])
    (tmp_path / "in" / "mapping.csv").write_text("")
    assert run("convert", "-d", tmp_path / "in", "-out", tmp_path / "a") == 0
    assert run("convert", "-d", f"{one},{two}", "-out", tmp_path / "b") == 0
    assert (
        files(tmp_path / "a")
        == files(tmp_path / "b")
        == ["Add.a.1.2.3.output.0.npy", "Add.b.1.2.4.output.0.npy"]
    )


CONV = "Conv2D.Default_conv_Conv2D-op12.2.7.161243956333802"


def conv(tmp_path: Path, **more: object) -> tuple[Path, np.ndarray, np.ndarray]:
    feature = np.arange(1, 2 * 20 * 3 * 4 + 1, dtype=np.float16).reshape(2, 20, 3, 4)
    weight = np.arange(1, 33 * 20 * 2 * 2 + 1, dtype=np.float32).reshape(33, 20, 2, 2)
    path = operator(
        tmp_path / "in" / CONV,
        inputs=[
            dump(layouts.from_host(feature, "NCHW", "NC1HWC0"), "NC1HWC0", feature.shape),
            dump(layouts.from_host(weight, "NCHW", "FRACTAL_Z"), "FRACTAL_Z", weight.shape),
        ],
        outputs=[dump(feature.transpose(0, 2, 3, 1), "NHWC", (2, 3, 4, 20))],
        op_name="Default/conv/Conv2D-op12",
        **more,  # type: ignore[arg-type]
    )
    return path, feature, weight


def test_formats_give_the_shape_in_the_name(tmp_path: Path) -> None:
    path, feature, weight = conv(tmp_path)
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NCHW", "-t", "npy") == 0
    assert files(tmp_path / "out") == [
        f"{CONV}.input.0.2x20x3x4.npy",
        f"{CONV}.input.1.33x20x2x2.npy",
        f"{CONV}.output.0.2x20x3x4.npy",
    ]
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / f"{CONV}.input.0.2x20x3x4.npy"), feature
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / f"{CONV}.input.1.33x20x2x2.npy"), weight
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / f"{CONV}.output.0.2x20x3x4.npy"), feature
    )


def test_bin_and_msnpy_names(tmp_path: Path) -> None:
    path, feature, _ = conv(tmp_path)
    assert (
        run("convert", "-d", path, "-out", tmp_path / "bin", "-f", "NHWC", "-t", "bin", "-i", 0)
        == 0
    )
    (name,) = files(tmp_path / "bin")
    assert name == f"{CONV}.input.0.2_3_4_20.float16.NHWC.bin"
    assert (tmp_path / "bin" / name).read_bytes() == feature.transpose(0, 2, 3, 1).tobytes()
    assert run("convert", "-d", path, "-out", tmp_path / "ms", "-t", "msnpy") == 0
    assert files(tmp_path / "ms") == [
        "Conv2D.Conv2D-op12.2.7.161243956333802.input.0.NC1HWC0.npy",
        "Conv2D.Conv2D-op12.2.7.161243956333802.input.1.FRACTAL_Z.npy",
        "Conv2D.Conv2D-op12.2.7.161243956333802.output.0.NHWC.npy",
    ]


def test_a_shape_given_and_a_tensor_chosen(tmp_path: Path) -> None:
    matrix = np.arange(20 * 33, dtype=np.float32).reshape(20, 33)
    device = layouts.from_host(matrix, "ND", "FRACTAL_NZ")
    path = operator(
        tmp_path / "MatMul.m.1.2.3", outputs=[raw(b"x", (1,), 4), dump(device, "FRACTAL_NZ", ())]
    )
    assert (
        run(
            "convert",
            "-d",
            path,
            "-out",
            tmp_path / "out",
            "-f",
            "ND",
            "-s",
            "([20,33])",
            "-o",
            "1",
        )
        == 0
    )
    assert files(tmp_path / "out") == ["MatMul.m.1.2.3.output.1.20x33.npy"]
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "MatMul.m.1.2.3.output.1.20x33.npy"), matrix
    )
    assert (
        run("convert", "-d", path, "-out", tmp_path / "out", "-f", "ND", "-s", "20,60", "-o", "1")
        == 34
    )
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "ND", "-o", "2") == 12


def test_what_cannot_be_converted_is_listed_and_the_rest_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = operator(tmp_path / "in" / "Add.a.1.2.3", outputs=[raw(b"ab", (2,), 4)])
    (tmp_path / "in" / "Bad.b.1.2.3").write_bytes(good.read_bytes()[:20])
    (tmp_path / "in" / "Nano.n.1.2.3").write_bytes(CONCAT.read_bytes()[:100])
    half = operator(
        tmp_path / "in" / "Half.h.1.2.3",
        inputs=[raw(bytes(4), (2,), 13)],
        outputs=[raw(b"ab", (2,), 4)],
    )
    assert run("convert", "-d", tmp_path / "in", "-out", tmp_path / "out") == 11
    listed = (tmp_path / "out" / "convert_failed_file_list.txt").read_text().splitlines()
    assert listed == [
        str(tmp_path / "in" / "Bad.b.1.2.3"),
        f"{half},input:0",
        str(tmp_path / "in" / "Nano.n.1.2.3"),
    ]
    assert "Add.a.1.2.3.output.0.npy" in files(tmp_path / "out")
    assert "Half.h.1.2.3.output.0.npy" in files(tmp_path / "out")
    assert "3 of 4 dump files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-d", "nowhere"], 3),
        (["-d", "nowhere,neither"], 3),
        (["-d", "empty"], 2),
        (["-d", "torn"], 11),
        (["-d", "nano"], 47),
        (["-d", "file", "-f", "NOSUCH"], 6),
        (["-d", "file", "-i", "0"], 6),
        (["-d", "file", "-o", "0"], 6),
        (["-d", "file", "-s", "1,2"], 6),
        (["-d", "file", "-f", "ND", "-i", "x"], 6),
        (["-d", "file", "-f", "ND", "-s", "1,,2"], 23),
        (["-d", "file", "-f", "ND", "-s", "1,0"], 23),
        (["-d", "file", "-f", "ND", "-i", "3"], 12),
        (["-d", "string"], 21),
        (["-d", "file", "-f", "NCHW"], 22),
        (["-d", "lstm", "-f", "ND"], 22),
        (["-d", "fz", "-f", "NCHW"], 23),
    ],
)
def test_exit_codes(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    operator(tmp_path / "file", inputs=[raw(b"ab", (2,), 4)])
    operator(tmp_path / "string", inputs=[raw(b"ab", (2,), 13)])
    operator(
        tmp_path / "lstm",
        inputs=[dump(np.zeros((1, 4, 16, 16), np.float16), "FRACTAL_ZN_LSTM", (4, 4))],
    )
    operator(tmp_path / "fz", inputs=[dump(np.zeros((4, 1, 16, 16), np.float16), "FRACTAL_Z", ())])
    (tmp_path / "torn").write_bytes((tmp_path / "file").read_bytes()[:-1])
    (tmp_path / "nano").write_bytes(CONCAT.read_bytes()[:100])
    assert run("convert", "-out", "out", *arguments) == code


def test_options_that_exclude_each_other_end_as_argparse_does(tmp_path: Path) -> None:
    for arguments in (
        ["convert", "-d", CONCAT, "-f", "ND", "-i", "0", "-o", "0"],
        ["convert"],
        ["convert", "-d", CONCAT, "-t", "txt"],
        ["nonsense"],
    ):
        with pytest.raises(SystemExit) as ended:
            run(*arguments)
        assert ended.value.code == 2


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 6
    assert "convert" in capsys.readouterr().out


def test_the_old_form_needs_no_option(tmp_path: Path) -> None:
    path = operator(tmp_path / "Add.a.1.2.3", outputs=[raw(b"ab", (2,), 4)], form="inline")
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-v", "1") == 0
    assert files(tmp_path / "out") == ["Add.a.1.2.3.output.0.npy"]


def test_buffers_and_spaces(tmp_path: Path) -> None:
    header = DumpData(version="2.0", buffer=(BufferEntry(size=3),), space=(SpaceEntry(size=2),))
    dumpfile.write(tmp_path / "Op.op.1.2.3", header, [b"abc", b"de"])
    assert (
        run("convert", "-d", tmp_path / "Op.op.1.2.3", "-out", tmp_path / "out", "-t", "bin") == 0
    )
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")} == {
        "Op.op.1.2.3.l1buffer.0.bin": b"abc",
        "Op.op.1.2.3.space.0.bin": b"de",
    }


BF16 = np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16)


def test_bfloat16_is_true_in_bin_and_float32_in_npy(tmp_path: Path) -> None:
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[raw(BF16.tobytes(), (1, 3), 27)])
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-t", "bin") == 0
    assert (
        tmp_path / "out" / "Op.op.1.2.3.output.0.1_3.bfloat16.ND.bin"
    ).read_bytes() == BF16.tobytes()
    assert run("convert", "-d", path, "-out", tmp_path / "npy") == 0
    values = np.load(tmp_path / "npy" / "Op.op.1.2.3.output.0.npy")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, BF16.astype(np.float32).reshape(1, 3))


def test_compat_bfloat16_bin_is_float32_and_its_name_counts(tmp_path: Path) -> None:
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[raw(BF16.tobytes(), (1, 3), 27)])
    assert (
        run("convert", "-d", path, "-out", tmp_path / "out", "-t", "bin", "--compat", "msaccucmp")
        == 0
    )
    content = (tmp_path / "out" / "Op.op.1.2.3.output.0.3.bfloat16.ND.bin").read_bytes()
    assert content == BF16.astype(np.float32).tobytes()
    assert len(content) == 12


CODES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("proto", [33, 34, 35])
def test_small_floats_are_right(proto: int, tmp_path: Path) -> None:
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[raw(CODES.tobytes(), (256,), proto)])
    assert run("convert", "-d", path, "-out", tmp_path / "out") == 0
    values = np.load(tmp_path / "out" / "Op.op.1.2.3.output.0.npy")
    expected = {
        33: hifloat8.decode(CODES),
        34: CODES.view(ml_dtypes.float8_e5m2),
        35: CODES.view(ml_dtypes.float8_e4m3fn),
    }[proto]
    np.testing.assert_array_equal(values, np.asarray(expected).astype(np.float32))
    assert values.dtype == np.float32


def test_small_floats_with_compat_are_wrong_where_the_reference_is() -> None:
    """The codes that the specification's exhaustive comparison lists, and no others."""
    true = {
        "hif8": hifloat8.decode(CODES),
        "e4m3": CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32),
        "e5m2": CODES.view(ml_dtypes.float8_e5m2).astype(np.float32),
    }
    given = {"hif8": compat.HIFLOAT8, "e4m3": compat.E4M3FN, "e5m2": compat.E5M2}
    wrong = {
        name: CODES[
            ~((given[name] == true[name]) | (np.isnan(given[name]) & np.isnan(true[name])))
        ].tolist()
        for name in true
    }
    assert wrong["hif8"] == [*range(0x08, 0x20), *range(0x88, 0xA0), 0xEF]
    assert len(wrong["hif8"]) == 49
    assert wrong["e4m3"] == [0x7F, 0xFF]
    assert wrong["e5m2"] == [0xFC]
    assert (compat.HIFLOAT8[0x08], compat.HIFLOAT8[0x10], compat.HIFLOAT8[0xEF]) == (
        1.25,
        0.5,
        np.inf,
    )
    assert compat.E4M3FN[[0x7F, 0xFF]].tolist() == [480.0, -480.0]
    assert compat.E5M2[0xFC] == np.inf


def test_compat_reaches_the_files(tmp_path: Path) -> None:
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[raw(CODES.tobytes(), (256,), 33)])
    assert run("--compat", "msaccucmp", "convert", "-d", path, "-out", tmp_path / "out") == 0
    values = np.load(tmp_path / "out" / "Op.op.1.2.3.output.0.npy")
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, compat.HIFLOAT8)
    int4 = operator(tmp_path / "Int.i.1.2.3", outputs=[raw(b"\x12", (2,), 28)])
    assert run("convert", "-d", int4, "-out", tmp_path / "out", "--compat", "msaccucmp") == 21
    assert run("convert", "-d", int4, "-out", tmp_path / "out") == 0
    assert np.load(tmp_path / "out" / "Int.i.1.2.3.output.0.npy").tolist() == [2, 1]


@pytest.mark.parametrize(
    ("c", "n", "groups", "same"),
    [
        (16, 32, 2, False),
        (24, 96, 3, False),
        (4, 8, 2, True),
        (16, 32, 1, True),
        (1, 32, 32, False),
    ],
)
def test_grouped_fractal_z_is_right_unless_told_otherwise(
    c: int, n: int, groups: int, same: bool, tmp_path: Path
) -> None:
    weight = np.arange(1, 2 * 2 * c * n + 1, dtype=np.float32).reshape(n, c, 2, 2)
    path = operator(
        tmp_path / "Conv2D.c.1.2.3", inputs=[dump(weight, "NCHW", weight.shape, groups=groups)]
    )
    right = layouts.from_host(weight, "NCHW", "FRACTAL_Z", groups=groups)
    for name, more in (("right", []), ("reference", ["--compat", "msaccucmp"])):
        assert run("convert", "-d", path, "-out", tmp_path / name, "-f", "FRACTAL_Z", *more) == 0
    shape = "x".join(map(str, right.shape))
    ours, theirs = (
        np.load(tmp_path / name / f"Conv2D.c.1.2.3.input.0.{shape}.npy")
        for name in ("right", "reference")
    )
    np.testing.assert_array_equal(ours, right)
    assert np.array_equal(ours, theirs) == same


def test_grouped_weights_can_be_read(tmp_path: Path) -> None:
    weight = np.arange(1, 2 * 2 * 24 * 96 + 1, dtype=np.float32).reshape(96, 24, 2, 2)
    device = layouts.from_host(weight, "NCHW", "FRACTAL_Z", groups=3)
    path = operator(
        tmp_path / "Conv2D.c.1.2.3", inputs=[dump(device, "FRACTAL_Z", weight.shape, groups=3)]
    )
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NCHW") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "Conv2D.c.1.2.3.input.0.96x24x2x2.npy"), weight
    )
    assert (
        run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NCHW", "--compat", "msaccucmp")
        == 26
    )


def test_batches_of_matrices_keep_their_dimensions_unless_told_otherwise(tmp_path: Path) -> None:
    batch = np.arange(2 * 3 * 20 * 33, dtype=np.float32).reshape(2, 3, 20, 33)
    path = operator(
        tmp_path / "B.b.1.2.3",
        inputs=[dump(layouts.from_host(batch, "ND", "FRACTAL_NZ"), "FRACTAL_NZ", batch.shape)],
    )
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "ND") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "B.b.1.2.3.input.0.2x3x20x33.npy"), batch
    )
    assert (
        run("convert", "-d", path, "-out", tmp_path / "out", "-f", "ND", "--compat", "msaccucmp")
        == 0
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "B.b.1.2.3.input.0.6x20x33.npy"), batch.reshape(6, 20, 33)
    )


def test_an_origin_in_another_layout_is_turned_not_cut(tmp_path: Path) -> None:
    nhwc = np.arange(1, 2 * 3 * 4 * 20 + 1, dtype=np.float32).reshape(2, 3, 4, 20)
    device = layouts.from_host(nhwc, "NHWC", "NC1HWC0")
    path = operator(tmp_path / "C.c.1.2.3", outputs=[dump(device, "NC1HWC0", nhwc.shape)])
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NCHW") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "C.c.1.2.3.output.0.2x20x3x4.npy"), nhwc.transpose(0, 3, 1, 2)
    )


def test_without_an_original_shape_padding_stays(tmp_path: Path) -> None:
    device = layouts.from_host(np.ones((1, 5, 2, 2), np.float32), "NCHW", "NC1HWC0")
    path = operator(tmp_path / "C.c.1.2.3", outputs=[dump(device, "NC1HWC0", ())])
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NCHW") == 0
    assert files(tmp_path / "out") == ["C.c.1.2.3.output.0.1x16x2x2.npy"]


def test_one_byte_types_have_32_channels_a_block(tmp_path: Path) -> None:
    host = np.arange(40, dtype=np.int8).reshape(1, 40, 1, 1)
    path = operator(tmp_path / "C.c.1.2.3", outputs=[dump(host, "NCHW", host.shape)])
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-f", "NC1HWC0") == 0
    assert files(tmp_path / "out") == ["C.c.1.2.3.output.0.1x2x1x1x32.npy"]


def test_slices_of_threads_have_the_shape_their_attribute_says(tmp_path: Path) -> None:
    ranges = [[[{"lower": 0, "higher": 2}]], [[{"lower": 2, "higher": 5}]]]
    told = {
        "threadMode": 1,
        "slice_instance_num": 2,
        "outputCutList": [[2]],
        "input_tensor_slice": ranges,
        "output_tensor_slice": ranges,
    }
    path = operator(
        tmp_path / "Add.sgt_graph_0_add.2.9.17.4.487.1.0",
        outputs=[raw(b"abc", (5,), 4)],
        attr=(Attribute(value=json.dumps(told)),),
    )
    assert run("convert", "-d", path, "-out", tmp_path / "out") == 0
    assert np.load(tmp_path / "out" / f"{path.name}.output.0.npy").tobytes() == b"abc"


def test_names_that_become_too_long_are_mapped(tmp_path: Path) -> None:
    name = f"Add.{'a' * 235}.1.2.3"
    path = operator(tmp_path / name, outputs=[raw(b"ab", (2,), 4)])
    assert run("convert", "-d", path, "-out", tmp_path / "out") == 0
    short, original = (tmp_path / "out" / "mapping.csv").read_text().strip().split(",")
    assert original == f"{name}.output.0.npy"
    assert re.fullmatch(r"[0-9a-f]{32}\.npy", short)
    assert np.load(tmp_path / "out" / short).tobytes() == b"ab"


def test_a_name_in_a_header_cannot_leave_the_output_directory(tmp_path: Path) -> None:
    path = operator(tmp_path / "Add.a.1.2.3", outputs=[raw(b"ab", (2,), 4)], op_name="x/..")
    assert run("convert", "-d", path, "-out", tmp_path / "out" / "deep", "-t", "msnpy") == 0
    assert files(tmp_path / "out") == ["deep"]
    assert files(tmp_path / "out" / "deep") == ["Add....1.2.3.output.0.ND.npy"]


def test_a_link_that_waits_in_the_output_directory_is_not_followed(tmp_path: Path) -> None:
    path = operator(tmp_path / "Add.a.1.2.3", outputs=[raw(b"ab", (2,), 4)])
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "Add.a.1.2.3.output.0.npy").symlink_to(tmp_path / "precious")
    assert run("convert", "-d", path, "-out", tmp_path / "out") == 0
    assert (tmp_path / "precious").read_text() == "keep"


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(3, dtype=np.int64),
        np.array([True, False]),
        np.array(2.5, np.float64),
        np.array([1 + 2j], np.complex64),
        np.array([1.5, np.nan], np.float16),
        BF16,
        np.zeros((0, 3), np.int8),
        np.arange(3, dtype=np.uint16),
        np.array([1.5, 2], ml_dtypes.float8_e4m3fn),
        np.array([1.5, 2], ml_dtypes.float8_e5m2),
        np.arange(3, dtype=np.uint64),
    ],
    ids=lambda values: str(values.dtype),
)
def test_pt_files_are_torchs(values: np.ndarray, tmp_path: Path) -> None:
    from opscope.formats.cann import torchfile

    torch = pytest.importorskip("torch")
    from tests.oldest import IS_OLDEST

    with (tmp_path / "x.pt").open("wb") as file:
        torchfile.write(file, values)
    # of unsigned types torch 2.4 thinks no good
    loaded = torch.load(tmp_path / "x.pt", weights_only=not IS_OLDEST)
    assert tuple(loaded.shape) == values.shape
    assert str(loaded.dtype).removeprefix("torch.") == values.dtype.name
    assert (
        loaded.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() == values.tobytes()
        if values.size
        else loaded.numel() == 0
    )


def test_pt_conversion(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[raw(BF16.tobytes(), (1, 3), 27)])
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-t", "pt") == 0
    loaded = torch.load(tmp_path / "out" / "Op.op.1.2.3.output.0.pt", weights_only=True)
    assert loaded.dtype == torch.bfloat16
    assert loaded.tolist() == [[1.5, -2.0, float("inf")]]


@pytest.mark.parametrize(
    "name",
    ["Opdebug.Node_OpDebug.59.1597922031178434", "OpDebug.Node_Opdebug.59.3.1597922031178434"],
)
def test_overflow_records_become_json(name: str, tmp_path: Path) -> None:
    path = operator(tmp_path / name, outputs=[raw(classic_record(), (2048,), 4)])
    assert run("convert", "-d", path, "-out", tmp_path / "out") == 0
    text = (tmp_path / "out" / f"{name}.output.0.json").read_text()
    assert json.loads(text)["AI Core"]["status"] == 32
    assert text.startswith('{\n    "DHA Atomic Add": {\n        "model_id": 0,')


def test_bad_overflow_records(tmp_path: Path) -> None:
    short = operator(tmp_path / "Opdebug.Node_OpDebug.1.2.3", outputs=[raw(bytes(10), (10,), 4)])
    assert run("convert", "-d", short, "-out", tmp_path / "out") == 11
    record = bytearray(modern_record(0))
    record[12] = 9
    unknown = operator(
        tmp_path / "Opdebug.Node_OpDebug.1.2.4", outputs=[raw(bytes(record), (2048,), 4)]
    )
    assert run("convert", "-d", unknown, "-out", tmp_path / "out") == 35


def overflow_tree(tmp_path: Path) -> Path:
    values = np.array([1, 65504, -3], np.float16)
    tree = tmp_path / "dump"
    operator(
        tree / "Mul.mul-op1.57.563.20",
        inputs=[raw(values.tobytes(), (3,), 2)],
        outputs=[raw(values.tobytes(), (3,), 2)],
        op_name="net/mul-op1",
    )
    operator(
        tree / "Mul.mul-op1.57.563.10",
        inputs=[],
        outputs=[raw(values.tobytes(), (3,), 2)],
        op_name="net/mul-op1",
    )
    operator(
        tree / "Opdebug.Node_OpDebug.1.2.30",
        outputs=[raw(classic_record(task=57, stream=563, status=32), (2048,), 4)],
    )
    later = modern_record(0, task_id=9, stream_id=9, context_id=65535, thread_id=65535, status=16)
    operator(tree / "Opdebug.Node_OpDebug.1.2.40", outputs=[raw(later, (2048,), 4)])
    return tree


def test_the_overflow_summary(tmp_path: Path) -> None:
    assert run("overflow", "-d", overflow_tree(tmp_path), "-out", tmp_path / "out", "-n", "1") == 0
    (name,) = [name for name in files(tmp_path / "out") if name.endswith(".txt")]
    assert re.fullmatch(r"overflow_summary_\d{14}\.txt", name)
    assert (tmp_path / "out" / name).read_text() == (
        "=================================================[1]==================================================\n"
        "[Mul] net/mul-op1\n"
        " [AI Core][TaskId:57][StreamId:563][Status:32]\n"
        " [timestamp:30]\n"
        " Mul.mul-op1.57.563.10.output.0.npy\n"
        " -[Format: ND] [Shape: (3,)] [Dtype: float16] [Max: 65504.0] [Min: -3.0] [Mean: 21834.0]\n"
    )
    assert "Opdebug.Node_OpDebug.1.2.30.output.0.json" in files(tmp_path / "out")


def test_a_record_whose_operator_is_not_there_is_still_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("overflow", "-d", overflow_tree(tmp_path), "-out", tmp_path / "out", "-n", "5") == 0
    captured = capsys.readouterr()
    assert "=[2]=" in captured.out
    assert "[AIC][TaskId:9][StreamId:9][Status:16]" in captured.out
    assert "no dump of task 9, stream 9" in captured.err


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (modern_record(0, status=0), 36),
        (classic_record(status=0), 35),
        (modern_record(0, version=1, status=[0, 0, 0, 0]), 36),
    ],
)
def test_records_without_overflow(record: bytes, code: int, tmp_path: Path) -> None:
    operator(tmp_path / "dump" / "Opdebug.Node_OpDebug.1.2.30", outputs=[raw(record, (2048,), 4)])
    assert run("overflow", "-d", tmp_path / "dump", "-out", tmp_path / "out") == code


def test_no_record_is_no_error(tmp_path: Path) -> None:
    assert run("overflow", "-d", DATA, "-out", tmp_path / "out") == 0
    assert run("overflow", "-d", tmp_path / "nowhere", "-out", tmp_path / "out") == 3


@pytest.mark.parametrize("script", ["msaccucmp.py", "msaccucmp.pyc"])
def test_the_shim_runs_a_line_of_the_manual(script: str, tmp_path: Path) -> None:
    assert run("--shim", tmp_path / "compare") == 0
    line = [
        sys.executable,
        script,
        "convert",
        "-d",
        str(CONCAT),
        "-out",
        str(tmp_path / "out"),
        "-v",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(
        line, cwd=tmp_path / "compare", env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(files(tmp_path / "out")) == 3
    line[4] = "nowhere"
    assert (
        subprocess.run(
            line, cwd=tmp_path / "compare", env=environment, capture_output=True, check=False
        ).returncode
        == 3
    )


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_the_shim_goes_on_in_the_environment_that_has_opscope(tmp_path: Path) -> None:
    """`python3 msaccucmp.py` is some other Python, and may be the very binary that the
    environment's links to.
    """
    assert run("--shim", tmp_path) == 0
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    line = [
        str(python),
        "-E",
        str(tmp_path / "msaccucmp.py"),
        "convert",
        "-d",
        str(CONCAT),
        "-out",
        str(tmp_path / "out"),
    ]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(files(tmp_path / "out")) == 3
    script = tmp_path / "msaccucmp.py"
    script.write_text(script.read_text().replace(sys.executable, str(tmp_path / "gone")))
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "opscope is not in" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_short_conversion_draws_nothing(tmp_path: Path) -> None:
    """tests/cli/test_progress.py has what a long one draws, on a terminal and elsewhere."""
    for number in range(3):
        operator(tmp_path / "in" / f"Add.a.1.2.{number}", outputs=[raw(b"ab", (2,), 4)])
    code = "import sys; from opscope.cli.msaccucmp import main; sys.exit(main(sys.argv[1:]))"
    line = [
        sys.executable,
        "-c",
        code,
        "convert",
        "-d",
        str(tmp_path / "in"),
        "-out",
        str(tmp_path / "out"),
    ]
    quiet = subprocess.run(
        line,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (quiet.returncode, quiet.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["npy", "bin"])
@pytest.mark.parametrize("dtype", [np.float16, np.bool_, ml_dtypes.bfloat16])
def test_large_tensors_have_the_same_bytes(kind: str, dtype: type, tmp_path: Path) -> None:
    values = (np.arange(1 << 20) % 251).astype(np.float32).astype(dtype).reshape(1 << 10, 1 << 10)
    proto = {"float16": 2, "bool": 11, "bfloat16": 27}[values.dtype.name]
    path = operator(
        tmp_path / "Op.op.1.2.3",
        [raw(b"x", (1,), 4)],
        [raw(values.tobytes() + b"behind", values.shape, proto)],
    )
    assert run("convert", "-d", path, "-out", tmp_path / "out", "-t", kind) == 0
    if kind == "bin":
        (name,) = (name for name in files(tmp_path / "out") if "output" in name)
        assert (tmp_path / "out" / name).read_bytes() == values.tobytes()
    else:
        loaded = np.load(tmp_path / "out" / "Op.op.1.2.3.output.0.npy")
        np.testing.assert_array_equal(
            loaded, values.astype(np.float32) if dtype is ml_dtypes.bfloat16 else values
        )


def test_a_name_that_was_too_long_comes_back(tmp_path: Path) -> None:
    """A file under a number is written under what the mapping.csv beside it calls it, be it named
    alone or with its folder.
    """
    path = operator(tmp_path / "in" / "98765", outputs=[raw(b"ab", (2,), 4)])
    (tmp_path / "in" / "mapping.csv").write_text("98765,Add.Default_Add-op0.1.2.1634155934514051\n")
    for dumped, out in ((path.parent, tmp_path / "all"), (path, tmp_path / "one")):
        assert run("convert", "-d", dumped, "-out", out) == 0
        assert files(out) == ["Add.Default_Add-op0.1.2.1634155934514051.output.0.npy"]
