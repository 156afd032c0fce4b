# SPDX-License-Identifier: Apache-2.0
"""What the real dumps of data/ say, checked against the files themselves."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from ms_dumps import calls, named, real, rows

from opscope.formats.mindspore import FORMAT
from opscope.formats.mindspore.calls import load_graph, read_folder
from opscope.formats.mindspore.ir import read_ir
from opscope.formats.mindspore.layout import find_places
from opscope.formats.mindspore.names import parse_tensor_name
from opscope.run.protocol import Run
from opscope.scan.api import scan


def test_the_origin_of_the_overflow_is_the_float16_product() -> None:
    """Not the BiasAdd before it, whose file holds half of a float32 buffer; no optimizer is accused
    of what it was given.
    """
    document = scan(FORMAT.open(real("ms_half")))
    (finding,) = document.findings
    assert finding.op == "Mul"
    assert finding.call == "Default/network-WithLossCell/_backbone-HalfNet/Mul-op0"
    assert finding.source == "/home/net/ms_net.py:32"
    assert finding.confidence == "proven"
    assert document.complete


@pytest.mark.parametrize("name", ["ms_conv", "ms_kernels"])
def test_healthy_dumps_are_clean(name: str) -> None:
    assert scan(FORMAT.open(real(name))).verdict == "clean"


@pytest.mark.parametrize("name", ["ms_half", "ms_conv", "ms_kernels"])
def test_every_file_of_a_kernel_is_a_row_with_its_statistics(name: str) -> None:
    """Rows joined back to files by their value: each equals numpy.load of the raw file."""
    root = real(name)
    run = FORMAT.open(root)
    by_file = {root / row.value.shard: row for row in run.rows("tensors") if row.value is not None}  # type: ignore[attr-defined]
    kernels = [path for path in root.rglob("*.npy") if not path.name.startswith("Parameter.")]
    partial = sum(bool(row.partial) for row in run.rows("tensors"))  # type: ignore[attr-defined]
    missing = 0
    for path in kernels:
        row = by_file.get(path.parent.resolve() / path.name) or by_file.get(path)
        if row is None:
            missing += 1
            continue
        values = np.load(path)
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        assert (row.shape, row.size, row.nan) == (
            values.shape,
            values.size,
            int(np.isnan(wide).sum()),
        )
        assert (row.pos_inf, row.neg_inf) == (
            int(np.isposinf(wide).sum()),
            int(np.isneginf(wide).sum()),
        )
        assert row.max == (finite.max() if finite.size else None)
        assert np.array_equal(run.value(row), values, equal_nan=values.dtype.kind == "f")
    assert missing == partial


def test_files_that_hold_half_of_a_buffer_are_partial() -> None:
    run = FORMAT.open(real("ms_half"))
    bias = rows(run, named(run, "fc1-Dense/BiasAdd-op0"))
    assert bias["output", "0"].partial
    assert bias["output", "0"].dtype == "float32"
    assert bias["output", "0"].nan is None
    assert bias["input", "1"].partial is None
    assert bias["input", "1"].dtype == "float32"


def test_a_backend_cast_belongs_to_the_kernel_before_it() -> None:
    run = FORMAT.open(real("ms_half"))
    cast, bias = named(run, "_backbone-HalfNet/Cast-op1"), named(run, "fc1-Dense/BiasAdd-op0")
    assert cast.parent == bias.index
    assert cast.source == bias.source == "/home/net/ms_net.py:31"
    assert cast.args is not None
    assert '"is_backend_cast":true' in cast.args
    own = named(run, "fc1-Dense/Cast-op3")
    assert own.parent is None
    assert '"is_backend_cast":false' in (own.args or "")


def test_calls_come_in_execution_order_with_full_names() -> None:
    root = real("ms_conv")
    order = (root / "rank_0/execution_order/ms_execution_order_graph_0.csv").read_text().split()[1:]
    run = FORMAT.open(root)
    for step in (0, 2):
        assert [call.name for call in calls(run) if call.step == step] == order
    assert {call.step for call in calls(run)} == {0, 2}


def test_numbers_in_file_names_are_not_those_of_the_graph() -> None:
    """Names differ for 13 kernels of ms_half; where even the order within a scope misleads, bytes
    and times decide.
    """
    run = FORMAT.open(real("ms_half"))
    cast = rows(run, named(run, "fc2-Dense/Cast-op3"))
    assert cast["input", "0"].shape == (4, 16)
    assert cast["input", "0"].value is not None
    assert "fc2-Dense_Cast-op0." in cast["input", "0"].value.shard


def test_phases_modules_and_forward_links() -> None:
    run = FORMAT.open(real("ms_conv"))
    gradient = named(run, "Grad_Conv2D/Conv2DBackpropFilter-op1", step=0)
    forward = named(run, "conv-Conv2d/Conv2D-op0", step=0)
    assert gradient.phase == "backward"
    assert gradient.forward_index == forward.index
    assert forward.module == "network._backbone.conv"
    product = named(run, "_backbone-ConvNet/fc-Dense/MatMul-op0", step=0)
    assert named(run, "fc-Dense/Grad_MatMul/MatMul-op1", step=0).forward_index == product.index
    assert named(run, "optimizer-Momentum/ApplyMomentum-op0", step=0).phase == "optimizer"


def test_attributes_are_enough_to_build_the_primitive_again() -> None:
    run = FORMAT.open(real("ms_conv"))
    args = named(run, "conv-Conv2d/Conv2D-op0", step=0).args or ""
    assert '"kernel_size":[3,3]' in args
    assert '"out_channel":4' in args
    assert '"pad_mode":"same"' in args
    assert args.startswith('{"args":[{"tensor":"0"},{"tensor":"1"}]')


def test_parameters_are_followed_through_the_optimizer() -> None:
    """Step 2 follows a step that was not dumped, so its weights are other versions; within a step
    edges are exact.
    """
    run = FORMAT.open(real("ms_conv"))
    convolution = rows(run, named(run, "conv-Conv2d/Conv2D-op0", step=0))
    assert (convolution["input", "1"].tensor_name, convolution["input", "1"].role) == (
        "conv.weight",
        "parameter",
    )
    update = next(call for call in calls(run) if call.op == "ApplyMomentum" and call.step == 0)
    held = rows(run, update)
    assert held["input", "0"].version is None
    assert held["output", "0"].version != convolution["input", "1"].version
    assert held["output", "input.1"].tensor_name == f"moments.{held['input', '0'].tensor_name}"
    later = rows(run, named(run, "conv-Conv2d/Conv2D-op0", step=2))
    assert later["input", "1"].version not in {row.version for row in held.values()}


def test_outputs_only_dumps_know_their_inputs_from_the_graph() -> None:
    run = FORMAT.open(real("ms_kernels"))
    matmul, bias = (
        named(run, "fc-Dense/MatMul-op0", step=1),
        named(run, "fc-Dense/BiasAdd-op0", step=1),
    )
    product = rows(run, matmul)["output", "0"]
    given = rows(run, bias)["input", "0"]
    assert given.version == product.version
    assert given.digest == product.digest
    assert rows(run, matmul)["input", "1"].tensor_name == "fc.weight"


@pytest.mark.parametrize("inside", ["rank_0", "rank_0/Net", "rank_0/Net/0", "rank_0/Net/0/2"])
def test_any_folder_of_a_dump_can_be_given(inside: str) -> None:
    path = real("ms_conv") / inside
    assert FORMAT.detect(path)
    run = FORMAT.open(path)
    assert run.problems == ()
    assert named(run, "conv-Conv2d/Conv2D-op0", step=2).source == "/home/net/ms_net.py:21"
    assert all(
        row.value is None or (path / row.value.shard).is_file() for row in run.rows("tensors")
    )  # type: ignore[attr-defined]


def test_listing_calls_reads_no_payload(tmp_path: Path) -> None:
    """Files that are no .npy at all are only noticed when tensors are asked for."""
    folder = tmp_path / "rank_0/Net/0/0"
    folder.mkdir(parents=True)
    for k in range(50):
        (
            folder / f"Add.Default_Add-op{k}.0.0.{1_700_000_000_000_000 + k}"
            ".output.0.DefaultFormat.Float32.npy"
        ).write_bytes(b"")
    run = FORMAT.open(tmp_path)
    assert len(calls(run)) == 50
    assert run.problems == ()
    assert [row.value for row in run.rows("tensors")] == [None] * 50  # type: ignore[attr-defined]
    assert len(run.problems) == 50


def test_every_name_of_the_real_dumps_is_understood() -> None:
    for path in real("ms_half").rglob("*.npy"):
        parsed = parse_tensor_name(path.name)
        assert parsed is not None
        assert parsed.dtype is not None
        assert math.isfinite(parsed.time)


def test_an_overflow_in_a_backend_cast_is_the_kernels(tmp_path: Path) -> None:
    """The BiasAdd's float32 result leaves float16 in the conversion after it: BiasAdd and its line
    are named, and the cast is said.
    """
    shutil.copytree(real("ms_half"), tmp_path / "dump")
    run = FORMAT.open(tmp_path / "dump")
    (made,) = (
        row.version
        for row in rows(run, named(run, "_backbone-HalfNet/Cast-op1")).values()
        if row.io == "output"
    )
    for shard in {
        row.value.shard for row in run.rows("tensors") if row.version == made and row.value
    }:  # type: ignore[attr-defined]
        values = np.load(tmp_path / "dump" / shard)
        values.flat[0] = np.inf
        np.save(tmp_path / "dump" / shard, values)
    finding = scan(FORMAT.open(tmp_path / "dump")).findings[0]
    assert (finding.op, finding.source) == ("BiasAdd", "/home/net/ms_net.py:31")
    assert finding.call == "Default/network-WithLossCell/_backbone-HalfNet/fc1-Dense/BiasAdd-op0"
    assert finding.reasons == (
        "float32 to float16 overflow",
        (
            "the back end converts its result (float32 to float16) in "
            "Default/network-WithLossCell/_backbone-HalfNet/Cast-op1"
        ),
    )
    assert (
        finding.evidence[0]["converted_by"]
        == "Default/network-WithLossCell/_backbone-HalfNet/Cast-op1"
    )
    assert finding.outputs[0].stats["pos_inf"] == 1


@pytest.mark.parametrize("left_out", ["input", "output"])
def test_half_a_dump_is_joined_as_the_whole_or_not_at_all(left_out: str, tmp_path: Path) -> None:
    """A kernel's line is told only as far as its own files tell it: a wrong one is worse than
    none.
    """
    shutil.copytree(
        real("ms_half"), tmp_path / "half", ignore=shutil.ignore_patterns(f"*.{left_out}.*.npy")
    )
    whole, half = _joined(real("ms_half")), _joined(tmp_path / "half")
    assert len(whole) == 76
    assert len(half) > 50
    assert {kernel: name for kernel, name in half.items() if whole.get(kernel) != name} == {}


def _joined(root: Path) -> dict[tuple[str, str], str]:
    """Full names of the kernels of files that were joined with the graph."""
    graph = read_ir(next(root.rglob("ms_output_trace_code_graph_0.ir")))
    folders = [read_folder(place, []) for place in find_places(root)]
    loaded = load_graph(root, 0, folders, ({0: graph}, {}))
    assert loaded is not None
    return {kernel: node.name for kernel, node in loaded.nodes.items()}


def _without_scopes(source: Path, target: Path, *, counted: bool) -> Path:
    """A copy whose files are named as the manual's sample is: `Conv2D.Conv2D-op12.…`; counted: a
    number of its own for each kernel.
    """
    shutil.copytree(source, target)
    numbers: dict[tuple[Path, str], dict[str, int]] = defaultdict(dict)
    for file in sorted(
        target.glob("rank_0/Net/*/*/*.npy"), key=lambda path: path.name.split(".")[4]
    ):
        op, name, *rest = file.name.split(".")
        if op != "Parameter":
            known = numbers[file.parent, op]
            number = known.setdefault(name, len(known)) if counted else name.rpartition("-op")[2]
            file.rename(file.with_name(".".join([op, f"{op}-op{number}", *rest])))
    return target


def _by_time(run: Run) -> dict[tuple[int, str, str], tuple[str, str | None]]:
    """Name and line of the call whose own file has this time."""
    files = [
        (call, row.value.shard.rpartition("/")[2].split("."))
        for call in calls(run)
        for row in rows(run, call).values()
        if row.value
    ]
    return {
        (call.step, parts[0], parts[4]): (call.name, call.source)
        for call, parts in files
        if parts[0] == call.op
    }


@pytest.mark.parametrize("counted", [False, True])
def test_names_without_scope_are_joined_where_something_tells_them(
    counted: bool, tmp_path: Path
) -> None:
    whole = _by_time(FORMAT.open(real("ms_conv")))
    bare = _by_time(
        FORMAT.open(_without_scopes(real("ms_conv"), tmp_path / "bare", counted=counted))
    )
    assert bare == whole
    assert any(source for _, source in bare.values())


@pytest.mark.parametrize("counted", [False, True])
def test_conversions_without_scope_are_never_joined_wrongly(counted: bool, tmp_path: Path) -> None:
    whole = _by_time(FORMAT.open(real("ms_half")))
    bare = _by_time(
        FORMAT.open(_without_scopes(real("ms_half"), tmp_path / "bare", counted=counted))
    )
    told = {key: found for key, found in bare.items() if "/" in found[0]}
    assert all(found == whole[key] for key, found in told.items() if key in whole)
    assert len({name for name, _ in told.values()}) > 50
