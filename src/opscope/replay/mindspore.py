# SPDX-License-Identifier: Apache-2.0
"""Replays the primitives of a MindSpore run under an interpreter that has MindSpore.

The process of the MindSpore form makes the call in its own types, in float64, and in float64 on
inputs that are off by one rounding. The last tells how far the call amplifies rounding, in place of
a second kernel of the same type. Where opscope has the primitive's definition
(substitute.mindspore) that is the true result, and MindSpore's own float64 is not asked.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import UnavailableError, UsageError
from opscope.judge.repetition import nature_of, told_apart
from opscope.judge.replayed import ROUNDOFF, Replayed, Sides, Terms, gravest, judge_output
from opscope.judge.terms import terms_of
from opscope.narrow import widened
from opscope.operators.catalogue import traits_of
from opscope.repro.case import FILE, encode_case
from opscope.repro.form_mindspore import FORM, definition_of, made_again, updated
from opscope.repro.tensorfile import write_tensors
from opscope.repro.worker import SCRIPTS, Trial, Worker
from opscope.repro.write import INPUTS, SCRIPT
from opscope.run.dtypes import dtype_of

if TYPE_CHECKING:
    from opscope.repro.build import Material
    from opscope.run.protocol import Run
    from opscope.run.schema import Call
    from opscope.substitute.mindspore import TrueResult


NEEDED = "it needs MindSpore: --python PATH names an interpreter that has it"
# The CPU back end works these out by approximations of its own (nnacl): Tanh is 1,700 roundings
# off.
APPROXIMATE = re.compile(
    r".*(Exp|Log|Sigmoid|Tanh|GeLU|Gelu|Erf|Softmax|SiLU|Swish|Mish|Elu|ELU|Softplus|LSTM|GRU|Entropy).*"
)
APPROXIMATION = 4096


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a call by slot: every time it was made, in a wider type, and there on nudged
    inputs; types are those of MindSpore. defined is the first by its definition.
    """

    trials: list[dict[str, Array]]
    wide: dict[str, Array]
    nudged: list[dict[str, Array]]
    types: dict[str, str]
    defined: TrueResult | None = None


class MindSporeReplayer:
    """Makes calls of one run in a process of another interpreter. Used as a with-block, which ends
    the process.
    """

    def __init__(
        self,
        run: Run,
        *,
        python: str,
        device: str | None,
        repeat: int,
        timeout: float,
        allowed: Sequence[str] = (),
    ) -> None:
        self.run = run
        self.python = python
        self.device = device
        self.repeat = max(repeat, 1)
        self.timeout = timeout
        self.allowed = allowed
        self._folder = Path(tempfile.mkdtemp(prefix="opscope-replay-"))
        self._place = self._folder / "call"
        self._worker: Worker | None = None

    def __enter__(self) -> MindSporeReplayer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker is not None:
            self._worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def replay(self, call: Call, *, synthesise: bool) -> dict[str, Any]:
        """The verdict of one primitive as plain data; UsageError, MissingValueError,
        UnavailableError say why there is none.
        """
        start = time.perf_counter()
        material = made_again(self.run, call)
        values = filled_by(material)
        if values == "synthesised" and not synthesise:
            raise UsageError(
                "values of its inputs were not kept; --synthesise invents some from the statistics"
            )
        if traits_of(call.op).random:
            raise UsageError("it draws random numbers, and the generator's state was not recorded")
        device, trial = self._make(material)
        result = judged(
            material,
            made_from(self._place, trial, definition_of(material)),
            exact=values == "recorded" and not updated(self.run, call),
            device=device,
        )
        return {
            "values": values,
            "device": device,
            "substitute": f"mindspore {trial.told}".strip(),
            **result,
            "seconds": time.perf_counter() - start,
        }

    def _make(self, material: Material) -> tuple[str, Trial]:
        """Make the call where it is asked for, else where it was recorded, else on the CPU: the
        device, and what the process says.
        """
        devices = (
            [self.device] if self.device else list(dict.fromkeys([material.case.device, "cpu"]))
        )
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        (self._place / FILE).write_bytes(encode_case(material.case))
        write_tensors(self._place / INPUTS, material.inputs)
        if self._worker is None:
            script = self._folder / SCRIPT
            script.write_text(FORM.script(material.case), encoding="utf-8")
            self._worker = Worker(
                SCRIPTS / FORM.worker,
                script,
                (),
                clean=False,
                python=self.python,
                allowed=self.allowed,
            )
        trial = Trial(status="cannot")
        for device in devices:
            request = {
                "folder": str(self._place),
                "code": FORM.section(material.case),
                "repeat": self.repeat,
                "device": device,
            }
            trial = self._worker.ask(request, self.timeout)
            if trial.status == "done":
                return device, trial
        if trial.status == "hang":
            raise UnavailableError(f"no answer after {self.timeout:g} s")
        raise UnavailableError(trial.told or f"the process died in it (exit code {trial.code})")


def filled_by(material: Material) -> str:
    """recorded or synthesised; UsageError where an input was memory without values."""
    kinds = {tensor.values for tensor in material.case.tensors}
    if "uninitialised" in kinds:
        raise UsageError("an input was memory that nobody had written yet")
    return "synthesised" if "synthesised" in kinds else "recorded"


def made_from(folder: Path, trial: Trial, defined: TrueResult | None) -> Made:
    """The results that the process left in its folder."""

    def load(name: str) -> dict[str, Array]:
        paths = {slot: folder / f"{name}.{slot}.npy" for slot in trial.seen}
        return {
            slot: np.load(path, allow_pickle=False) for slot, path in paths.items() if path.exists()
        }

    return Made(
        trials=[load(f"results.{number}") for number in range(trial.tried)],
        wide=load("wide") if trial.told else {},
        nudged=[load(f"nudged.{number}") for number in range(2)] if trial.told else [],
        types={slot: str(told["dtype"]) for slot, told in trial.seen.items()},
        defined=defined,
    )


def judged(material: Material, made: Made, *, exact: bool, device: str) -> dict[str, Any]:
    """Verdict, nature and counts, as substitute.recorded.Replay has them, of the recorded outputs
    or of what was made now.
    """
    kept = {entry.key for entry in material.expected} & set(made.types) if exact else set()
    recorded = {entry.key: entry.load() for entry in material.expected if entry.key in kept}
    elsewhere = (
        bool(recorded) and device.partition(":")[0] != material.case.device.partition(":")[0]
    )
    results = told_apart(made.trials, alike)
    verdicts = [judge_all(material, made, outputs, trusted=None) for outputs, _ in results]
    wrong = sum(
        count
        for (_, count), each in zip(results, verdicts, strict=True)
        if gravest(each).verdict == "wrong"
    )
    outputs = (
        judge_all(material, made, recorded, trusted=made.trials[0] if elsewhere else None)
        if recorded
        else ()
    )
    against = "recorded outputs" if recorded else f"outputs on {device}"
    slots = outputs or verdicts[0]
    # this device errs, whatever was recorded
    if gravest(slots).verdict != "wrong" and wrong and not elsewhere:
        slots, against = (
            next(each for each in verdicts if gravest(each).verdict == "wrong"),
            f"outputs on {device}",
        )
    verdict = gravest(slots)
    first = told_apart(
        [{slot: array for slot, array in trial.items() if slot == "0"} for trial in made.trials],
        alike,
    )
    # what a kernel keeps in further results may be left as the memory was
    if len(first) > 1 and verdict.verdict != "wrong":
        verdict = Replayed(
            verdict="flaky",
            slot="0",
            reason=f"{len(first)} different results in {len(made.trials)} runs",
        )
    return {
        "verdict": msgspec.to_builtins(verdict),
        "against": against,
        "tried": len(made.trials),
        "wrong": wrong,
        "distinct": len(results),
        "nature": nature_of(wrong, len(made.trials), len(results))
        if verdict.verdict == "wrong"
        else None,
        "metrics": metrics_of(material, made, recorded or made.trials[0], slots),
    }


def alike(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether two results have the same elements, NaN equal to NaN and 0 to -0."""
    return one.keys() == other.keys() and all(
        array.tobytes() == other[slot].tobytes()
        or (array.dtype.kind in "fc" and np.array_equal(array, other[slot], equal_nan=True))
        for slot, array in one.items()
    )


def judge_all(
    material: Material, made: Made, target: dict[str, Array], *, trusted: dict[str, Array] | None
) -> tuple[Replayed, ...]:
    """The verdict of each output; trusted is what another device than the recorded one gave in the
    same types.
    """
    return tuple(
        judge_slot(material, made, slot, array, trusted=trusted) for slot, array in target.items()
    )


def judge_slot(
    material: Material, made: Made, slot: str, target: Array, *, trusted: dict[str, Array] | None
) -> Replayed:
    case = material.case
    now, dtype = made.trials[0][slot], type_of(material, made, slot)
    if slot == "0" and made.defined is not None and made.defined.true.shape == target.shape:
        own = None if trusted is None else shaped(trusted[slot], target)
        return made.defined.judge(shaped(target, target), dtype=dtype, own=own)
    true = made.wide.get(slot)
    if (true if true is not None else now).size != target.size:
        return Replayed(
            verdict="unknown",
            slot=slot,
            reason=f"it gives the shape {list(now.shape)} here",
            size=target.size,
        )
    if true is None and np.shares_memory(now, target):
        return Replayed(
            verdict="unknown",
            slot=slot,
            reason="MindSpore has no kernel of a wider type here",
            size=target.size,
        )
    count = terms_of(case.op, [tensor.shape for tensor in case.tensors], [now.shape])
    near = (
        true is not None
        and dtype in ROUNDOFF
        and approximate(case.op, now, true, unit=ROUNDOFF[dtype])
    )
    own = own_side(made, slot, dtype, trusted=trusted, approximated=near)
    sides = Sides(
        dtype=dtype, target=shaped(target, now), own=shaped(own, now), true=shaped(true, now)
    )
    verdict = judge_output(slot, sides, Terms(op=case.op, count=count))
    if verdict.verdict == "wrong" and slot != "0":
        reason = (
            f"result {slot} is other here, which kernels may leave out or keep for the "
            "gradient in a form of their own"
        )
        return msgspec.structs.replace(verdict, verdict="unknown", reason=reason)
    return verdict


def approximate(op: str, now: Array, true: Array, *, unit: float) -> bool:
    """Whether a result is as near the true one as this back end's approximations are."""
    if APPROXIMATE.fullmatch(op) is None or now.shape != true.shape:
        return False
    both = np.isfinite(now) & np.isfinite(true)
    error, size = np.abs(now[both] - true[both]), np.abs(true[both])
    return bool(both.any() and float(error.max()) <= APPROXIMATION * unit * float(size.max()))


def own_side(
    made: Made, slot: str, dtype: str, *, trusted: dict[str, Array] | None, approximated: bool
) -> Array | None:
    """What a trusted kernel of the same type gives: another device's, else that of inputs off by a
    rounding, the farther of two.
    """
    if trusted is not None:
        return trusted[slot]
    if dtype not in ROUNDOFF or slot not in made.wide:
        return made.trials[0][slot] if slot not in made.wide else None
    if approximated:
        return made.trials[0][slot]
    true, (one, other) = made.wide[slot], (each[slot] for each in made.nudged)
    with np.errstate(all="ignore"):
        farther: Array = np.where(np.abs(other - true) > np.abs(one - true), other, one)
    return farther


def shaped(array: Any, like: Array) -> Any:
    """In float64 and in the shape that MindSpore gives: its CPU back end dumps some from before a
    reshape.
    """
    if array is None:
        return None
    wide = widened(array).astype(np.float64) if array.dtype.kind not in "biuc" else array
    return wide.reshape(like.shape) if wide.size == math.prod(like.shape) else wide


def type_of(material: Material, made: Made, slot: str) -> str:
    """The element type of an output: the recorded one, else that of MindSpore."""
    return next(
        (dtype_of(out.dtype).name for out in material.case.outputs if out.slot == slot),
        made.types[slot],
    )


def metrics_of(
    material: Material, made: Made, target: dict[str, Array], slots: tuple[Replayed, ...]
) -> tuple[dict[str, Any], ...]:
    """The standard checker's columns for each output, against the wider result."""
    import torch

    from opscope.substitute.arguments import dtype_named
    from opscope.substitute.columns import columns_of

    verdicts = {each.slot: each.verdict for each in slots}
    rows = []
    for slot, array in target.items():
        true = made.wide.get(slot)
        if true is not None and true.size == array.size:
            mine = torch.from_numpy(np.array(widened(array), np.float64)).to(
                dtype_named(type_of(material, made, slot))
            )
            columns = columns_of(mine.reshape(true.shape), torch.from_numpy(np.array(true)))
            rows.append({"slot": slot, "verdict": verdicts.get(slot, ""), **columns})
    return tuple(rows)
