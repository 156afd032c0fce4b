# SPDX-License-Identifier: Apache-2.0
"""ptdbg_ascend's text ".pkl" of all versions, and api_accuracy_checker's jsons."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msprobe_dumps import calls, named, rows, tensor

from opscope.errors import FormatError
from opscope.formats import accuracy_checker, ptdbg
from opscope.formats.registry import open_run
from opscope.formats.writing.array_files import write_pt

ONES = np.ones((2, 3), np.float32)


def write_pkl(path: Path, *lines: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def line(
    name: str,
    *,
    dtype: str = "torch.float32",
    shape: Any = (2, 3),
    statistics: Any = (2.0, -1.0, 0.5, 3.0),
) -> list[Any]:
    return [
        name,
        1,
        [],
        dtype,
        list(shape) if isinstance(shape, tuple) else shape,
        list(statistics),
    ]


STACK = [
    "Functional_conv2d_0_forward_stack_info",
    [
        ["/env/lib/python3.8/site-packages/torch/nn/f.py", 9, "conv2d", "x"],
        ["/home/me/a.py", 12, "forward", "y"],
    ],
]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step_above", [True, False])
def test_stacks_before_or_after_and_steps_above_or_below(
    tmp_path: Path, before: bool, step_above: bool
) -> None:
    tensors = [
        line("Functional_conv2d_0_forward_input.0"),
        line("Functional_conv2d_0_forward_output.0"),
    ]
    folder = (
        tmp_path / "step2" / "ptdbg_dump_v4.0" / "rank3"
        if step_above
        else tmp_path / "ptdbg_dump_v4.0" / "step2" / "rank3"
    )
    write_pkl(folder / "api_stack_dump.pkl", *([STACK, *tensors] if before else [*tensors, STACK]))
    run = open_run(tmp_path)
    (call,) = calls(run)
    assert (call.step, call.rank, call.op, call.name) == (
        2,
        3,
        "Functional.conv2d",
        "Functional_conv2d_0_forward",
    )
    assert call.source == "/home/me/a.py:12"
    assert [frames.frames for frames in run.rows("stacks")] == [  # type: ignore[attr-defined]
        (
            "/env/lib/python3.8/site-packages/torch/nn/f.py:9 in conv2d",
            "/home/me/a.py:12 in forward",
        )
    ]


def test_both_generations_of_statistics(tmp_path: Path) -> None:
    """Three numbers before version 4, four since; a norm that is no float is "Nan"; bool and empty
    have none.
    """
    write_pkl(
        tmp_path / "rank0" / "dump.pkl",
        line("Tensor_add_0_forward_input.0", statistics=(2.0, -1.0, 0.5)),
        line("Tensor_add_0_forward_input.1", statistics=(2.0, -1.0, 0.5, "Nan")),
        line("Tensor_add_0_forward_input.2", dtype="torch.bool", statistics=()),
        line("Tensor_add_0_forward_output.0", statistics=(float("nan"),) * 4),
    )
    run = ptdbg.FORMAT.open(tmp_path)
    held = rows(run, calls(run)[0])
    assert (held["input", "0"].max, held["input", "0"].nan, held["input", "0"].l2norm) == (
        2.0,
        0,
        None,
    )
    assert (held["input", "1"].l2norm, held["input", "2"].max) == (None, None)
    assert (held["output", "0"].nan, held["output", "0"].max) == (1, None)


def test_nested_slots_scalars_and_backward(tmp_path: Path) -> None:
    write_pkl(
        tmp_path / "dump.pkl",
        line("VF_lstm_99_forward_input.0"),
        line("VF_lstm_99_forward_input.1.0"),
        line("VF_lstm_99_forward_input.1.1"),
        line(
            "VF_lstm_99_forward_input.3", dtype="<class 'int'>", shape="[]", statistics=(4, 4, 4, 4)
        ),
        line("VF_lstm_99_forward_output.0"),
        line("VF_lstm_99_backward_output.0"),
        line("Module_Linear_2_forward_input.0"),
    )
    run = ptdbg.FORMAT.open(tmp_path)
    call = named(run, "VF_lstm_99_forward")
    assert json.loads(call.args or "") == {
        "args": [{"tensor": "0"}, [{"tensor": "1.0"}, {"tensor": "1.1"}], None, 4],
        "kwargs": {},
    }
    assert set(rows(run, call)) == {
        ("input", "0"),
        ("input", "1.0"),
        ("input", "1.1"),
        ("output", "0"),
    }
    backward = named(run, "VF_lstm_99_backward")
    assert (backward.phase, backward.forward_index) == ("backward", call.index)
    assert (
        named(run, "Module_Linear_2_forward").level,
        named(run, "Module_Linear_2_forward").op,
    ) == ("module", "Linear")


def test_the_type_in_the_pkl_is_the_true_one(tmp_path: Path) -> None:
    """The .npy may hold float32 where the tensor was bfloat16 or float16."""
    write_pkl(
        tmp_path / "api_stack_dump.pkl",
        line("Tensor_a_0_forward_output.0", dtype="torch.bfloat16"),
        line("Tensor_b_0_forward_output.0", dtype="torch.float16"),
    )
    (tmp_path / "api_stack_dump").mkdir()
    for name in "ab":
        np.save(tmp_path / "api_stack_dump" / f"Tensor_{name}_0_forward_output.0.npy", ONES * 3)
    run = ptdbg.FORMAT.open(tmp_path)
    assert [(row.dtype, row.max) for row in run.rows("tensors")] == [
        ("bfloat16", 3.0),
        ("float16", 3.0),
    ]  # type: ignore[attr-defined]


def test_a_real_pickle_is_never_loaded(tmp_path: Path) -> None:
    """Loading this one would make a file."""
    mark = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (open, (str(mark), "w"))

    (tmp_path / "dump.pkl").write_bytes(pickle.dumps(Evil()))
    assert not ptdbg.FORMAT.detect(tmp_path)
    with pytest.raises(FormatError, match="a real pickle, which is never loaded"):
        ptdbg.FORMAT.open(tmp_path)
    assert not mark.exists()


def test_bad_lines_become_problems(tmp_path: Path) -> None:
    path = write_pkl(
        tmp_path / "dump.pkl",
        line("Tensor_add_0_forward_input.0"),
        ["Tensor_x"],
        ["what", 1, [], "torch.float32", [], []],
    )
    path.write_text(
        path.read_text() + '["Tensor_add_0_forward_output.0", 1, [], "torch.flo\n' + "{}\n"
    )
    run = ptdbg.FORMAT.open(tmp_path)
    assert len(calls(run)) == 1
    assert [problem.split(" ")[0] for problem in run.problems] == [
        f"{path}:{number}" for number in (2, 3, 4, 5)
    ]
    assert "at byte" in run.problems[2]


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: b'["Tensor_a_0_forward_input.0",1,' + text.encode())
)
def test_any_bytes(data: bytes) -> None:
    try:
        ptdbg.parse_pkl(data, "x.pkl")
    except FormatError:
        pass


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["input", "output"]),
    st.lists(st.integers(0, 10**6), max_size=4),
    st.none()
    | st.text(max_size=8)
    | st.lists(st.floats() | st.text(max_size=3) | st.integers() | st.none(), max_size=6),
)
def test_any_line(io: str, slot: list[int], statistics: Any) -> None:
    name = ".".join([f"Tensor_a_0_forward_{io}", *map(str, slot)])
    text = json.dumps([name, 0, [], "torch.float32", statistics, statistics]).encode()
    assert ptdbg.parse_pkl(text, "x.pkl").problems == ()


def test_accuracy_checker_dumps(tmp_path: Path) -> None:
    folder = tmp_path / "step4"
    (folder / "forward_real_data").mkdir(parents=True)
    kept = tensor(datapath="/somewhere/forward_real_data/Functional*silu*0.0.pt")
    forward = {
        "Functional*silu*0": {
            "args": [kept, {"type": "int", "value": 3}],
            "kwargs": {"mask": tensor()},
        },
        "Torch*add*7": {"args": [tensor()], "kwargs": {}},
    }
    (folder / "forward_info_12345678.json").write_text(json.dumps(forward))
    (folder / "backward_info_12345678.json").write_text(
        json.dumps({"Functional*silu*0": [tensor(), None]})
    )
    (folder / "stack_info_12345678.json").write_text(
        json.dumps({"Functional*silu*0": ["File /home/me/a.py, line 7, in f, \n x"]})
    )
    write_pt(folder / "forward_real_data" / "Functional*silu*0.0.pt", ONES * 5)
    run = open_run(tmp_path)
    assert run.info.format == "api_accuracy_checker"
    silu = named(run, "Functional*silu*0.forward")
    assert (silu.step, silu.rank, silu.op, silu.source) == (
        4,
        0,
        "Functional.silu",
        "/home/me/a.py:7",
    )
    held = rows(run, silu)
    assert (held["input", "0"].max, held["input", "kwargs.mask"].max) == (5.0, 2.0)
    assert json.loads(silu.args or "") == {
        "args": [{"tensor": "0"}, 3],
        "kwargs": {"mask": {"tensor": "kwargs.mask"}},
    }
    backward = named(run, "Functional*silu*0.backward")
    assert (backward.forward_index, backward.source) == (silu.index, "/home/me/a.py:7")


def test_a_torn_checker_json_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "forward_info_0.json").write_text(
        json.dumps({"Torch*add*0": {"args": [tensor()], "kwargs": {}}})
    )
    (tmp_path / "backward_info_0.json").write_text('{"Torch*add*0": [')
    run = accuracy_checker.FORMAT.open(tmp_path)
    assert len(calls(run)) == 1
    assert len(run.problems) == 1
