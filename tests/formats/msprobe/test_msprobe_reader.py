# SPDX-License-Identifier: Apache-2.0
"""msprobe of every generation: names, nesting, stacks, arguments, statistics, files, and what
drifted between versions.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msprobe_dumps import calls, entry, named, real, rows, save, tensor, write

from opscope.errors import FormatError
from opscope.formats.extremes import proven
from opscope.formats.msprobe import FORMAT
from opscope.formats.msprobe.names import parse_name
from opscope.formats.registry import open_run
from opscope.narrow import dtype
from opscope.scan.api import scan


def test_modules_enclose_what_ran_in_them() -> None:
    """dump.json lists a module after its APIs; the run has it before them, as their parent."""
    run = FORMAT.open(real("mp_tensor_mix"))
    block, convolution, api = (
        named(run, name)
        for name in (
            "Module.blocks.0.Block.forward.0",
            "Module.blocks.0.conv.Conv1d.forward.0",
            "Functional.conv1d.0.forward",
        )
    )
    assert block.index < convolution.index < api.index
    assert (api.parent, convolution.parent, block.parent) == (convolution.index, block.index, None)
    assert (api.level, api.op, api.module) == ("api", "Functional.conv1d", "blocks.0.conv")
    assert (convolution.level, convolution.op, convolution.module) == (
        "module",
        "Conv1d",
        "blocks.0.conv",
    )
    assert api.source == "/home/net/msprobe_net.py:16"


def test_backward_points_at_its_forward_and_carries_its_line() -> None:
    run = FORMAT.open(real("mp_tensor_mix"))
    backward, forward = (
        named(run, "Functional.linear.0.backward"),
        named(run, "Functional.linear.0.forward"),
    )
    assert (backward.phase, backward.forward_index, backward.source) == (
        "backward",
        forward.index,
        forward.source,
    )
    gradients = named(run, "Module.head.Linear.parameters_grad.0")
    assert gradients.forward_index == named(run, "Module.head.Linear.forward.0").index
    held = rows(run, gradients)
    assert (held["output", "weight"].role, held["output", "weight"].tensor_name) == (
        "gradient",
        "head.weight",
    )
    assert named(run, "Tensor.mul_.0.forward").phase == "optimizer"


def test_values_come_from_the_files_and_else_from_the_json() -> None:
    run = FORMAT.open(real("mp_tensor_mix"))
    kept = rows(run, named(run, "Functional.conv1d.0.forward"))
    assert kept["input", "0"].digest is not None
    assert kept["input", "0"].max == run.value(kept["input", "0"]).max()
    taken_out = rows(run, named(run, "Functional.conv1d.1.forward"))["input", "0"]
    assert (taken_out.value, taken_out.digest) == (None, None)
    assert taken_out.max is not None
    half = rows(run, named(run, "Tensor.to.0.forward"))["output", "0"]
    assert half.dtype == "bfloat16"
    assert run.value(half).dtype == dtype("bfloat16")


def test_arguments() -> None:
    run = FORMAT.open(real("mp_stats_L1"))
    assert json.loads(named(run, "Functional.gelu.0.forward").args or "") == {
        "args": [{"tensor": "0"}],
        "kwargs": {"approximate": "none"},
    }
    assert json.loads(named(run, "Functional.conv1d.0.forward").args or "")["args"][3:] == [
        [1],
        [1],
        [1],
        1,
    ]
    assert json.loads(named(run, "Torch.cat.0.forward").args or "")["args"][0] == [
        {"tensor": "0.0"},
        {"tensor": "0.1"},
    ]
    assert named(run, "Functional.gelu.0.backward").args is None


def test_every_value_of_the_specification(tmp_path: Path) -> None:
    odd: list[Any] = [
        {"type": "slice", "value": [0, None, 2]}, {"type": "ellipsis", "value": "..."},
        {"type": "torch.Size", "value": [2, 3]}, {"type": "torch.memory_format",
            "format": "torch.channels_last"}, {}, None, {"type": "float", "value": math.nan},
            {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "ab"},
            {"type": "numpy.float32", "value": 2.5}, {"type": "int", "value": 1 << 80},
    ]  # fmt: skip
    named_values = {
        "dtype": {"type": "torch.dtype", "value": "torch.float16"},
        "device": {"type": "torch.device", "value": "npu:0"},
    }
    write(
        tmp_path / "step0" / "rank0",
        {"Torch.odd.0.forward": entry(*odd, input_kwargs=named_values)},
    )
    tree = json.loads(calls(FORMAT.open(tmp_path))[0].args or "")
    assert tree["args"][2] == [2, 3]
    assert tree["args"][3] == {"memory_format": "channels_last"}
    assert tree["args"][4] == {"object": "not recorded"}
    assert tree["args"][6] == {"float": "nan"}
    assert tree["args"][9] == {"object": str(1 << 80)}
    assert tree["kwargs"] == {"dtype": {"dtype": "float16"}, "device": {"device": "npu:0"}}


@pytest.mark.parametrize(
    ("name", "level", "op", "module", "phase"),
    [
        ("Functional.linear.3.forward", "api", "Functional.linear", None, "forward"),
        ("Tensor.__getitem__.12.backward", "api", "Tensor.__getitem__", None, "backward"),
        (
            "Distributed.all_reduce.0.forward",
            "api",
            "Distributed.all_reduce",
            None,
            "communication",
        ),
        ("Primitive.conv2d.Conv2D.0.forward", "api", "Primitive.conv2d.Conv2D", None, "forward"),
        (
            "Module.0.layers.1.attn.Attention.forward.2",
            "module",
            "Attention",
            "0.layers.1.attn",
            "forward",
        ),
        ("Cell.conv2.Conv2d.backward.0", "module", "Conv2d", "conv2", "backward"),
        ("Module.head.Linear.parameters_grad", "module", "Linear", "head", "backward"),
        ("Jit.Net.0.forward", "api", "Jit.Net", None, "forward"),
        ("y.0.debug", "api", "debug", None, "forward"),
        ("y_grad.0.debug", "api", "debug", None, "backward"),
    ],
)
def test_names(name: str, level: str, op: str, module: str | None, phase: str) -> None:
    found = parse_name(name)
    assert found is not None
    assert (found.level, found.op, found.module, found.phase) == (level, op, module, phase)


def test_a_nan_poisons_the_extremes_and_proves_one_nan() -> None:
    assert proven("float32", math.nan, math.nan, math.nan, math.nan) == {"nan": 1}
    assert proven("float16", math.inf, -3.0, math.inf, math.inf) == {"pos_inf": 1, "min": -3.0}
    assert proven("float32", 1.0, 0.0, 0.5, 2.0) == {
        "max": 1.0,
        "min": 0.0,
        "nan": 0,
        "pos_inf": 0,
        "neg_inf": 0,
        "mean": 0.5,
        "l2norm": 2.0,
    }
    assert proven("float32", 1.0, 0.0) == {"max": 1.0, "min": 0.0}
    assert proven("float32", 1.0, 0.0, torch=True) == {
        "max": 1.0,
        "min": 0.0,
        "nan": 0,
        "pos_inf": 0,
        "neg_inf": 0,
    }
    assert proven("int64", 49, 1) == {
        "max": 49.0,
        "min": 1.0,
        "nan": 0,
        "pos_inf": 0,
        "neg_inf": 0,
        "max_int": 49,
        "min_int": 1,
    }
    assert proven("float32", "N/A", [], {}, None) == {}
    assert "nan" not in proven("float16", 60000.0, -1.0, 2.0, math.inf)
    assert proven("float32", 3.0, -math.inf, -math.inf, math.inf, torch=True) == {
        "max": 3.0,
        "neg_inf": 1,
        "nan": 0,
        "pos_inf": 0,
    }
    assert proven("float32", math.inf, -math.inf, torch=True) == {
        "pos_inf": 1,
        "neg_inf": 1,
        "nan": 0,
    }
    assert proven("float32", -math.inf, -math.inf, torch=True) == {
        "neg_inf": 1,
        "nan": 0,
        "pos_inf": 0,
    }


def test_scan_finds_where_an_infinity_began_that_became_a_nan(tmp_path: Path) -> None:
    """Nothing but four statistics, and no edges: the logarithm made the -inf, the product the NaN
    of it.
    """
    low = tensor(Max=0.9, Min=-math.inf, Mean=-math.inf, Norm=math.inf)
    bad = tensor(Max=math.nan, Min=math.nan, Mean=math.nan, Norm=math.nan)
    data = {
        "Torch.log.0.forward": entry(tensor(Min=0.0), output=low),
        "Functional.linear.0.forward": entry(low, tensor(), output=bad),
        "Functional.cross_entropy.0.forward": entry(bad, output=bad),
    }
    write(tmp_path / "step0" / "rank0", data)
    assert [finding.call for finding in scan(open_run(tmp_path)).findings] == [
        "Torch.log.0.forward"
    ]


def test_scan_finds_the_first_nan_of_a_statistics_dump(tmp_path: Path) -> None:
    """A norm that overflowed is no sign of one; the literals NaN and Infinity are read."""
    bad = tensor(Max=math.nan, Min=math.nan, Mean=math.nan, Norm=math.nan)
    data = {
        "Functional.linear.0.forward": entry(tensor(), output=tensor(Norm=math.inf)),
        "Torch.log.0.forward": entry(tensor(Norm=math.inf), output=bad),
        "Torch.mul.0.forward": entry(bad, output=bad),
    }
    stack = {
        "0": [
            ["Torch.log.0.forward"],
            ["File /home/me/train.py, line 41, in forward, \n return x.log()"],
        ]
    }
    write(tmp_path / "step0" / "rank0", data, stack=stack)
    text = (tmp_path / "step0" / "rank0" / "dump.json").read_text()
    assert "NaN" in text
    assert "Infinity" in text
    (finding,) = scan(open_run(tmp_path)).findings
    assert (finding.call, finding.source) == ("Torch.log.0.forward", "/home/me/train.py:41")


def test_the_drift_between_generations(tmp_path: Path) -> None:
    """No framework key, one stack each, parameters_grad without a number or as a bare leaf,
    is_recompute, micro steps.
    """
    data = {
        "Module.fc.Linear.forward.0": entry(
            tensor(), is_recompute=True, parameters={"weight": tensor()}
        ),
        "Module.fc.Linear.parameters_grad": {"weight": tensor(), "bias": [tensor()]},
        "Functional.odd.0.forward": entry(
            tensor(Max=3, Min=1, dtype="torch.int64", Mean=2.0, Norm=4.0)
        ),
    }
    stack = {
        "Module.fc.Linear.forward.0": [
            "File /home/me/a.py, line 1, in f, \n x",
            "File /b.py, line 2, in g, \n y",
        ]
    }
    construct = {"Module.fc.Linear.forward.0": ["optimizer", 0], "optimizer": None}
    folder = write(tmp_path / "step1" / "rank", data, stack=stack, construct=construct, level="mix")
    value = json.loads((folder / "dump.json").read_text())
    del value["framework"]
    (folder / "dump.json").write_text(json.dumps(value))
    run = FORMAT.open(tmp_path)
    module = named(run, "Module.fc.Linear.forward.0")
    assert (module.phase, module.step, module.rank, module.source) == (
        "recompute",
        1,
        0,
        "/home/me/a.py:1",
    )
    assert rows(run, module)["input", "parameters.weight"].role == "parameter"
    assert set(rows(run, named(run, "Module.fc.Linear.parameters_grad"))) == {
        ("output", "weight"),
        ("output", "bias"),
    }
    row = rows(run, named(run, "Functional.odd.0.forward"))["input", "0"]
    assert (row.max_int, row.min_int, row.mean) == (3, 1, 2.0)


def test_hashes_are_not_our_digest(tmp_path: Path) -> None:
    xor = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2],
        "md5": "0x00000000000000ff",
        "requires_grad": False,
    }
    scalar = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [],
        "md5": 3.5,
        "requires_grad": False,
    }
    write(
        tmp_path / "step0" / "rank0",
        {"Torch.a.0.forward": entry(tensor(md5="70bf176b"), xor, scalar)},
    )
    held = rows(FORMAT.open(tmp_path), calls(FORMAT.open(tmp_path))[0])
    assert [held["input", slot].digest for slot in "012"] == [None, None, None]
    assert (held["input", "1"].max, held["input", "2"].max) == (None, 3.5)


def test_tensor_files_lie_beside_the_json_whatever_it_says(tmp_path: Path) -> None:
    values = np.full((2, 3), 7.0, np.float32)
    folder = tmp_path / "step0" / "proc77"
    data = {
        "Torch.a.0.forward": entry(
            tensor(data_name="Torch.a.0.forward.input.0.pt"),
            output=tensor(data_name="../../../../etc/passwd"),
        ),
        "Torch.b.0.forward": entry(
            tensor(data_name="lost.pt"), output=tensor(dtype="torch.bfloat16", data_name="b.npy")
        ),
    }
    write(folder, data, dump_data_dir="/nowhere/else", task="tensor")
    save(folder, "Torch.a.0.forward.input.0.pt", values)
    save(folder, "b.npy", values)
    run = FORMAT.open(tmp_path)
    first, second = (rows(run, call) for call in calls(run))
    assert (first["input", "0"].max, first["output", "0"].value) == (7.0, None)
    assert (second["input", "0"].value, second["input", "0"].max) == (None, 2.0)
    assert (second["output", "0"].dtype, second["output", "0"].max) == ("bfloat16", 7.0)
    assert run.problems == ()


def test_several_ranks_and_steps(tmp_path: Path) -> None:
    for step in (0, 2):
        for rank in (0, 5):
            write(tmp_path / f"step{step}" / f"rank{rank}", {"Torch.a.0.forward": entry(tensor())})
    run = FORMAT.open(tmp_path)
    assert [(call.process, call.rank, call.step, call.index) for call in calls(run)] == [
        (0, 0, 0, 0),
        (0, 0, 2, 1),
        (1, 5, 0, 0),
        (1, 5, 2, 1),
    ]


def test_a_folder_or_the_json_itself_can_be_given(tmp_path: Path) -> None:
    folder = write(tmp_path / "step3" / "rank1", {"Torch.a.0.forward": entry(tensor())})
    for path in (folder.parent, folder, folder / "dump.json"):
        run = open_run(path)
        assert [(call.step, call.rank) for call in calls(run)] == [(3, 1)]


def test_debug_points_and_nan_flags(tmp_path: Path) -> None:
    folder = tmp_path / "step0" / "rank0"
    write(
        folder,
        {
            "y.0.debug": tensor(),
            "blob.0.debug": {"a": tensor(), "b": [tensor(), {"type": "int", "value": 1}]},
        },
        name="debug.json",
        level="debug",
    )
    run = FORMAT.open(tmp_path)
    assert set(rows(run, named(run, "blob.0.debug"))) == {("output", "a"), ("output", "b.0")}
    assert set(rows(run, named(run, "y.0.debug"))) == {("output", "0")}
    write(
        tmp_path / "flags",
        {"Torch.a.0.forward": {"is_nan": 0}, "Torch.b.0.forward": {"is_nan": 1}},
        task="nan_check",
    )
    run = FORMAT.open(tmp_path / "flags")
    assert [rows(run, call)["output", "0"].nan for call in calls(run)] == [0, 1]


def test_a_bad_json_does_not_hide_the_others(tmp_path: Path) -> None:
    write(
        tmp_path / "step0" / "rank0",
        {"Torch.a.0.forward": entry(tensor())},
        stack={"0": 3},
        construct=[1],
    )
    write(tmp_path / "step1" / "rank0", {"Torch.a.0.forward": entry(tensor())})
    torn = tmp_path / "step1" / "rank0" / "dump.json"
    torn.write_text(torn.read_text()[:-30])
    run = FORMAT.open(tmp_path)
    assert [call.step for call in calls(run)] == [0]
    assert len(run.problems) == 1
    assert "dump.json at byte" in run.problems[0]
    torn.write_text("[" * 100_000)
    assert "nested too deep" in FORMAT.open(tmp_path).problems[0]


def test_shapes_and_names_that_make_no_sense(tmp_path: Path) -> None:
    """NaN where sizes belong, cycles of parents, entries that are no objects, names of no known
    shape.
    """
    data = {
        "Torch.a.0.forward": entry(
            tensor(shape=(1,)) | {"shape": [math.nan, -1, True]},
            tensor() | {"shape": [1 << 40, 1 << 40]},
        ),
        "what is this": entry(tensor()),
        "Torch.b.0.forward": None,
        "Torch.c.0.forward": {"input_args": 7, "output": {"x": tensor()}, "parameters": [1]},
    }
    construct = {
        "Torch.a.0.forward": "Torch.b.0.forward",
        "Torch.b.0.forward": "Torch.a.0.forward",
        "Torch.c.0.forward": "Torch.c.0.forward",
    }
    write(tmp_path, data, construct=construct)
    run = FORMAT.open(tmp_path)
    assert {call.name for call in calls(run)} == set(data)
    held = rows(run, named(run, "Torch.a.0.forward"))
    assert (held["input", "0"].shape, held["input", "1"].shape) == (None, None)
    assert rows(run, named(run, "Torch.c.0.forward"))["output", "x"].max == 2.0


def test_nothing_to_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text('{"task": "statistics", "data": []}')
    with pytest.raises(FormatError, match='no object "data"'):
        FORMAT.open(tmp_path)
