# SPDX-License-Identifier: Apache-2.0
"""The rules by which primitives of MindSpore are judged, on small recorded answers in place of a
MindSpore.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opscope.narrow import narrowed, widened
from opscope.operators.catalogue import traits_of
from opscope.replay.mindspore import APPROXIMATION, Made, alike, approximate, judged
from opscope.repro.build import Material
from opscope.repro.case import Buffer, Case, CaseOutput, CaseTensor, Failure
from opscope.repro.form_mindspore import updated
from opscope.repro.tensorfile import Entry
from opscope.run.dtypes import dtype_of
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Coverage, RunInfo
from opscope.run.schema import Call, Tensor
from opscope.substitute.mindspore import definition

Array = np.ndarray[Any, Any]
X = np.linspace(0.1, 2, 32)
UNIT = 2.0**-24


def material(op: str, recorded: dict[str, Array] | None = None, **named: Any) -> Material:
    """A case of one float32 operand whose outputs were recorded as these."""
    found = recorded or {}
    row = CaseTensor(
        slot="0",
        dtype="float32",
        shape=(32,),
        stride=(1,),
        offset=0,
        buffer="0",
        device="cpu",
        key="0",
        kept=(32,),
        values="recorded",
    )
    case = Case(
        form="mindspore",
        op=op,
        call="c",
        device="cpu",
        args={"args": [{"tensor": "0"}], "kwargs": named},
        buffers={"0": Buffer(size=32, dtype="float32")},
        tensors=(row,),
        failure=Failure(kind="none"),
        outputs=tuple(
            CaseOutput(slot=slot, dtype="float32", shape=array.shape, device="cpu", key=slot)
            for slot, array in found.items()
        ),
    )
    entries = [
        Entry(
            key=slot, dtype=dtype_of("float32"), shape=array.shape, load=lambda array=array: array
        )
        for slot, array in found.items()
    ]
    return Material(case, (), tuple(entries))


def made(*trials: Array, wide: Array | None, slot: str = "0") -> Made:
    """What MindSpore gave each time, and in float64; nudged inputs change nothing."""
    return Made(
        trials=[{slot: trial} for trial in trials],
        wide={} if wide is None else {slot: wide},
        types={slot: "float32"},
        nudged=[] if wide is None else [{slot: wide}, {slot: wide}],
    )


def single(array: Array) -> Array:
    return array.astype(np.float32)


def verdict(op: str, target: Array, now: Made, slot: str = "0") -> Any:
    found = judged(material(op, {slot: target}), now, exact=True, device="cpu")
    return found["verdict"]["verdict"], found["verdict"]["reason"], found


def test_a_recorded_result_is_held_against_float64() -> None:
    now = made(single(X * X), wide=X * X)
    assert verdict("Square", single(X * X), now)[0] == "agree"
    word, _, found = verdict("Square", single(X * X) + np.float32(0.01), now)
    assert (word, found["nature"], found["against"], found["wrong"]) == (
        "wrong",
        "transient",
        "recorded outputs",
        0,
    )


def test_approximations_of_the_back_end_accuse_nobody_but_what_is_further_off_does() -> None:
    """Of operators that have no definition here; the others are held against that."""
    true = np.tanh(X)
    rough = single(true + 1700 * UNIT)
    assert verdict("Elu", rough, made(rough, wide=true))[0] != "wrong"
    assert verdict("Square", rough, made(rough, wide=true))[0] == "wrong"
    far = single(true + 0.01)
    assert verdict("Elu", far, made(single(true), wide=true))[0] == "wrong"
    assert approximate("Elu", true + APPROXIMATION * UNIT * 0.9, true, unit=UNIT)
    assert not approximate("Elu", true + APPROXIMATION * UNIT * 2, true, unit=UNIT)
    assert not approximate("MatMul", true, true, unit=UNIT)
    assert not approximate("Elu", true[:3], true, unit=UNIT)


def test_what_a_definition_says_counts_and_not_what_float64_gives_there() -> None:
    """MindSpore's Softplus is log(1 + exp(x)) in float64 as well; its Tanh is above 1 at 5."""
    low = np.array([-30.0, -12.0, 1.0])
    bad = np.log(1 + np.exp(low))
    now = Made(
        trials=[{"0": single(np.array([0.0, bad[1], bad[2]]))}],
        wide={"0": bad},
        nudged=[{"0": bad}, {"0": bad}],
        types={"0": "float32"},
        defined=definition("Softplus", [low], {}, types=["float32"], result="float32"),
    )
    found = judged(material("Softplus", {"0": now.trials[0]["0"]}), now, exact=True, device="cpu")
    assert found["verdict"]["verdict"] == "wrong"
    assert "by definition" in found["verdict"]["reason"]
    assert found["verdict"]["worst"] == (0,)
    assert float(found["verdict"]["expected"]) == pytest.approx(np.exp(-30.0))


def test_of_several_results_only_the_first_accuses() -> None:
    wrong = single(X + 1)
    assert verdict("BatchNorm", wrong, made(single(X), wide=X))[0] == "wrong"
    word, reason, _ = verdict("BatchNorm", wrong, made(single(X), wide=X, slot="1"), slot="1")
    assert word == "unknown"
    assert "result 1 is other here" in reason


def test_without_a_wider_kernel_nothing_is_known_of_what_is_made_now() -> None:
    now = single(X)
    found = judged(material("Square"), made(now, wide=None), exact=False, device="cpu")
    assert (found["verdict"]["verdict"], found["against"]) == ("unknown", "outputs on cpu")
    assert verdict("Square", single(X), made(now, wide=None))[0] == "agree"
    assert verdict("Square", single(X)[:5], made(now, wide=X))[0] == "unknown"


@pytest.mark.parametrize(
    ("off", "word", "nature"),
    [
        ((0, 0, 0), "agree", None),
        ((1, 1, 1), "wrong", "persistent"),
        ((1, 0, 0), "wrong", "intermittent"),
        ((1, 2, 3), "wrong", "unstable"),
    ],
)
def test_faults_told_apart_by_repeating(
    off: tuple[int, ...], word: str, nature: str | None
) -> None:
    now = made(*(single(X * X + error) for error in off), wide=X * X)
    for recorded in ({}, {"0": single(X * X)}):
        found = judged(material("Square", recorded), now, exact=bool(recorded), device="cpu")
        assert (found["verdict"]["verdict"], found["nature"], found["tried"]) == (word, nature, 3)


def test_another_device_than_the_recorded_one_is_not_what_is_in_question() -> None:
    now = made(single(X * X + 1), wide=X * X)
    there = material("Square", {"0": single(X * X)})
    assert judged(there, now, exact=True, device="gpu:0")["verdict"]["verdict"] != "wrong"


def test_equal_results() -> None:
    one = {"0": np.array([np.nan, 0.0, 1.0], np.float32)}
    assert alike(one, {"0": np.array([np.nan, -0.0, 1.0], np.float32)})
    assert not alike(one, {"0": np.array([np.nan, 0.0, 2.0], np.float32)})
    assert not alike(one, {"1": one["0"]})


def test_operands_that_were_written_are_not_what_was_read() -> None:
    """MindSpore's dump takes them once the kernel is done, a recording of what was compiled too;
    primitives that the recorder itself saw are read before.
    """
    written, plain = (
        Call(process=0, rank=0, step=0, index=0, level="operator", phase="optimizer", op="Assign",
             name="Assign", args=json.dumps({"args": [{"tensor": "0"}], "kwargs": kwargs}))
        for kwargs in ({"side_effect_mem": True}, {})
    )  # fmt: skip

    def run(*, before: bool, version: int | None) -> MemoryRun:
        info = RunInfo(path="x", format="x", coverage=Coverage(before=before))
        row = Tensor(process=0, index=0, io="input", slot="0", version=version, dtype="float32",
                     shape=(1,))  # fmt: skip
        return MemoryRun(info, (), (written,), (row,))

    assert updated(run(before=False, version=1), written)
    assert updated(run(before=True, version=None), written)
    assert not updated(run(before=True, version=1), written)
    assert not updated(run(before=False, version=None), plain)


@pytest.mark.parametrize(
    "op",
    [
        "StandardNormal",
        "NormalTensorFloat",
        "UniformReal",
        "Dropout",
        "Multinomial",
        "Gamma",
        "LogUniformCandidateSampler",
    ],
)
def test_primitives_that_draw(op: str) -> None:
    assert traits_of(op).random


@pytest.mark.parametrize(
    "op", ["DropoutGrad", "NormalizeSlice", "LayerNorm", "GammaFunction", "Range"]
)
def test_primitives_that_do_not_draw(op: str) -> None:
    assert not traits_of(op).random


def test_a_recorded_result_of_bfloat16_is_held_against_float64() -> None:
    target = narrowed(X * X, "bfloat16")
    wide = widened(target).astype(np.float64)
    word, _, found = verdict("Square", target, made(single(wide), wide=wide))
    assert word == "agree"
    assert [row["verdict"] for row in found["metrics"]] == ["agree"]
