# SPDX-License-Identifier: Apache-2.0
"""File names and directories: the shapes in the manuals and in real dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.formats.cann import names
from opscope.formats.cann.names import DumpName, Place


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "Add.Default_Add-op0.1.2.1634155934514051",
            DumpName(
                op_type="Add",
                op_name="Default_Add-op0",
                task=1,
                stream=2,
                timestamp=1634155934514051,
            ),
        ),
        (
            "L2Loss.L2Loss.3.1638329841577837",
            DumpName(op_type="L2Loss", op_name="L2Loss", task=3, timestamp=1638329841577837),
        ),
        (
            "ConcatV2D.concatv2.0.0.550288648",
            DumpName(
                op_type="ConcatV2D", op_name="concatv2", task=0, stream=0, timestamp=550288648
            ),
        ),
        ("Add.7.1.2.9", DumpName(op_type="Add", op_name="7", task=1, stream=2, timestamp=9)),
        ("Add.add.65535.65535.9", DumpName(op_type="Add", op_name="add", timestamp=9)),
        (
            "Conv2D.partition0_sgt_graph_0_conv_lxslice0.2.9.1670205071724946.4.487.0.0",
            DumpName(
                op_type="Conv2D",
                op_name="partition0_sgt_graph_0_conv_lxslice0",
                task=2,
                stream=9,
                timestamp=1670205071724946,
                task_type=4,
                context=487,
                thread=0,
                device=0,
            ),
        ),
        (
            "aclnnIndexSelect_0_L0.GatherV3AiCore.1.20250508095618530",
            DumpName(
                op_type="GatherV3AiCore",
                op_name="aclnnIndexSelect_0_L0",
                task=1,
                timestamp=20250508095618530,
                aclnn=True,
            ),
        ),
        (
            "exception_info.2.0.20250402071926393",
            DumpName(
                op_type="exception_info",
                op_name="",
                stream=2,
                task=0,
                timestamp=20250402071926393,
                exception=True,
            ),
        ),
        (
            "my.tag.custom.17",
            DumpName(op_type="custom", op_name="my.tag", timestamp=17, exception=True),
        ),
    ],
)
def test_names(name: str, parts: DumpName) -> None:
    assert names.parse(name) == parts


@pytest.mark.parametrize(
    "name",
    [
        "Opdebug.Node_OpDebug.59.1597922031178434",
        "OpDebug.Node_Opdebug.59.1597922031178434",
        "Opdebug.Node_OpDebug.59.3.1597922031178434",
        "OPDEBUG.NODE_OPDEBUG.59.3.1597922031178434.4.1.0.0",
    ],
)
def test_every_spelling_of_an_overflow_record(name: str) -> None:
    parsed = names.parse(name)
    assert parsed is not None
    assert (parsed.opdebug, parsed.task, parsed.timestamp) == (True, 59, 1597922031178434)


@pytest.mark.parametrize(
    "name",
    [
        "mapping.csv",
        "Add.add.1.2.3.output.0.npy",
        "Add.add.1.2.3.csv",
        "8664279048047335611",
        "Add.add.x.2.3",
        "Add.add.1",
        "1.2.3.4",
        "k_host.o",
        "",
    ],
)
def test_other_names(name: str) -> None:
    assert names.parse(name) is None


def test_slices_of_an_operator() -> None:
    name = "partition0_rank2_new_sub_graph15_sgt_graph_0_fp32_vars_conv2d_39_Conv2D_lxslice12"
    assert names.slice_number(name) == 12
    assert names.slice_base(name) == "fp32_vars_conv2d_39_Conv2D"
    assert names.slice_number("Conv2D") is None
    assert names.slice_base("Conv2D") == "Conv2D"


@pytest.mark.parametrize(
    ("directories", "place"),
    [
        (
            "out/20230101120000/3/model/1/7",
            Place(time="20230101120000", device=3, model="model", model_id=1, step=7),
        ),
        ("out/20230101120000/3", Place(time="20230101120000", device=3)),
        ("out/5/20230101120000/0", Place(time="20230101120000", device=0, step=5)),
        (
            "out/5/20230101120000/0/model/1/0",
            Place(time="20230101120000", device=0, model="model", model_id=1, step=5),
        ),
        ("rank_3/Net/1/4", Place(rank=3, step=4)),
        ("extra-info/data-dump/0", Place(step=0)),
        ("", Place()),
    ],
)
def test_directories(directories: str, place: Place) -> None:
    assert names.place([part for part in directories.split("/") if part]) == place


# std::hash<std::string> of libstdc++, printed by a program compiled with g++ on x86-64.
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", "6142509188972423790"),
        ("a", "4993892634952068459"),
        ("abcdefg", "16063891478991045295"),
        ("abcdefgh", "8664279048047335611"),
        (
            "Conv2D.Default_network-WithLossCell__backbone-AlexNet_conv3-Conv2d_Conv2D-op12.2.7.161243956333802",
            "9021098432604749590",
        ),
        ("/dump/20230101/0/算子", "14074779501691341300"),
    ],
)
def test_the_number_a_long_name_is_stored_under(text: str, number: str) -> None:
    assert names.stored_name(text) == number


def test_mapping(tmp_path: Path) -> None:
    long_name = "Op." + "n" * 300 + ".1.2.3"
    (tmp_path / "mapping.csv").write_text(f"{names.stored_name(long_name)},{long_name}\n")
    assert names.read_mapping(tmp_path) == {names.stored_name(long_name): long_name}
    assert names.read_mapping(tmp_path / "nowhere") == {}


def test_names_in_files() -> None:
    assert names.sanitised("Default/net.x\\y z") == "Default_net_x_y_z"
