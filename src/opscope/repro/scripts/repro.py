#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: FBT003, ARG001
"""One operator call, alone: rebuilds the tensors it read, makes the call, says whether the recorded
failure shows.

Needs torch, nothing else. Exit code: 1 the failure shows, 0 it does not, 125 it
cannot be tried here (device, operator, element type or library missing), 101 this script itself
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes  # noqa: F401 - for what is stored
import fnmatch  # noqa: F401 - for what is allowed
import importlib
import importlib.util
import json
import math  # noqa: F401 - for the judging
import os
import re  # noqa: F401 - for the parts
import subprocess
import sys
import tempfile
import textwrap  # noqa: F401 - for the parts
import time
import traceback  # noqa: F401 - for the parts
from pathlib import Path
from typing import Any

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: F401 - for the judging
except ImportError as missing:
    print(f"cannot be tried here: {missing}; install torch", file=sys.stderr)
    sys.exit(125)

# --- the call ---
OPERATOR = "aten::bmm.default"
BACKWARD = False


def call(t: Any, dtype: Any, device: Any, generator: Any) -> Any:
    """The call as it was recorded; t holds its tensors by slot, dtype and device turn names into
    what is used here.
    """
    return torch.ops.aten.bmm.default(t["0"], t["1"])


# --- end of the call ---

# --- parts ---
from opscope.repro.scripts.allowing import why_refused  # noqa: E402 - script.py puts the text of these modules here
from opscope.repro.scripts.judging import (  # noqa: E402
    Decomposed,
    Finding,
    Kept,
    Reference,
    beyond,
    describe,
    device_failure,
    equals_recorded,
    first_line,
    is_random,
    judge_error,
    judge_memory,
    judge_mismatch,
    judge_nonfinite,
    number_kind,
    printable,
    statistics,
    type_name,
    wider_results,
)
from opscope.repro.scripts.rebuilding import build_tensors, element_type, restore  # noqa: E402
from opscope.repro.scripts.stored import read_tensors, write_tensors  # noqa: E402
from opscope.repro.scripts.verdict import CannotTry, answered, parsed  # noqa: E402

# --- end of parts ---

HERE = Path(__file__).resolve().parent
BEGUN = b"the call begins"
LIMIT = 20.0  # seconds after which a call counts as hanging, where the case says nothing else
WIDEST = {"float": torch.float64, "complex": torch.complex128}
LIBRARIES = {"npu": "torch_npu", "torchvision": "torchvision", "torchaudio": "torchaudio"}
UNSUPPORTED = (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError)


class Conditions:
    """Where the call is made and in which element types: names of the recorded ones go in, those
    used here come out.
    """

    def __init__(self, recorded: str, device: str, wide: dict[str, Any]) -> None:
        self.recorded = recorded.partition(":")[0]
        self.target = device
        # kind of element type ("float", "complex", "int") -> the type used instead
        self.wide = wide
        self.seed = 0
        self.states: dict[str, Any] = {}

    def dtype(self, name: str) -> Any:
        own = element_type(name)
        return self.wide.get(number_kind(own), own)

    def device(self, name: str) -> Any:
        # A tensor that lay on the CPU beside an accelerator (a scalar, say) stays there.
        return torch.device(self.target if name.partition(":")[0] == self.recorded else name)

    def generator(self, name: str) -> Any:
        made = torch.Generator(device=self.device(name))
        state = self.states.get("generator:" + name)
        return made.manual_seed(self.seed) if state is None else made.set_state(state)


def widening(name: str) -> dict[str, Any]:
    dtype = element_type(name)
    if number_kind(dtype) != "float":
        return {number_kind(dtype): dtype}
    return {
        "float": dtype,
        "complex": torch.complex128 if dtype is torch.float64 else torch.complex64,
    }


def usable_device(name: str, notes: list[str]) -> str:
    """The device of this name, or the first of its kind when this machine has fewer; CannotTry when
    there is none.
    """
    kind = name.partition(":")[0]
    reason = ""
    for candidate in (name, kind):
        try:
            if kind == "npu":
                importlib.import_module("torch_npu")
            torch.zeros(1, device=candidate)
        except (*UNSUPPORTED, AssertionError, ImportError, AttributeError) as error:
            reason = reason or first_line(error)
            continue
        if candidate != name:
            notes.append(f"{name} is not here, {candidate} is used")
        return candidate
    raise CannotTry(f"device {printable(name)}: {reason}")


def load_library(name: str) -> None:
    """Import what registers a custom operator: a module's name, a .py file or a shared library."""
    if name.endswith((".so", ".dll", ".dylib")):
        registry: Any = torch.ops
        registry.load_library(name)
    elif name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None:
            raise ImportError(f"{name} is not a module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[Path(name).stem] = module
        spec.loader.exec_module(module)
    else:
        importlib.import_module(name)


def find_operator(imports: list[str], allowed: list[str]) -> Any:
    """The operator, where it may be called (why_refused); CannotTry where it may not, or is not
    here.
    """
    namespace, _, rest = OPERATOR.partition("::")
    if imports:
        sys.path.append(str(Path.cwd()))
    try:
        for name in imports + ([LIBRARIES[namespace]] if namespace in LIBRARIES else []):
            load_library(name)
        operator = getattr(torch.ops, namespace)
        for part in rest.split("."):
            operator = getattr(operator, part)
    except (AttributeError, RuntimeError, ImportError, OSError) as error:
        hint = "" if namespace == "aten" else "; --import the module that registers it"
        raise CannotTry(f"operator {OPERATOR}: {first_line(error)}{hint}") from error
    refused = why_refused(OPERATOR, operator, imports, allowed)
    if refused:
        raise CannotTry(refused)
    return operator


def load_tensors(name: str) -> dict[str, Any]:
    try:
        return read_tensors(HERE / name)
    except TypeError as error:
        raise CannotTry(
            f"torch {torch.__version__} cannot read {name}: {first_line(error)}"
        ) from error


def set_random_state(case: dict[str, Any], stored: dict[str, Any], where: Conditions) -> None:
    where.states = {name: stored[key] for name, key in case["random"]["states"].items()}
    torch.manual_seed(where.seed)
    if "cpu" in where.states:
        torch.set_rng_state(where.states["cpu"])
    kind = where.target.partition(":")[0]
    if kind != "cpu" and kind in where.states:
        getattr(torch, kind).set_rng_state(where.states[kind], where.target)


def make_call(
    case: dict[str, Any], stored: dict[str, Any], where: Conditions, given: Any = None
) -> dict[str, Any]:
    """Make the call once, on given tensors or new ones; returns its outputs by slot, arguments it
    wrote to and gradients included.
    """
    tensors = given or build_tensors(case, stored, where)
    set_random_state(case, stored, where)
    leaves = {}
    for row in case["tensors"] if BACKWARD else ():
        if row["requires_grad"] and number_kind(tensors[row["slot"]].dtype) in ("float", "complex"):
            leaves[row["slot"]] = tensors[row["slot"]].requires_grad_()
    with torch.set_grad_enabled(BACKWARD), autocast(case, where):
        returned = call(tensors, where.dtype, where.device, where.generator)
    outputs: dict[str, Any] = {}
    collect(returned if isinstance(returned, (tuple, list)) else (returned,), "", outputs)
    if BACKWARD:
        go_back(outputs, tensors)
    wait_for(where.target)
    for slot, leaf in leaves.items():
        if leaf.grad is not None:
            outputs["grad." + slot] = leaf.grad
    for row in case["outputs"]:
        if row["slot"] not in outputs and row["slot"] in tensors:
            outputs[row["slot"]] = tensors[row["slot"]]
    return outputs


def wait_for(target: str) -> None:
    """A kernel that fails on a device is told of when somebody waits, which is to be here."""
    kind = target.partition(":")[0]
    wait = getattr(getattr(torch, kind, None), "synchronize", None)
    if kind != "cpu" and wait is not None:
        wait()


def go_back(outputs: dict[str, Any], tensors: dict[str, Any]) -> None:
    """The backward pass: from the recorded gradients where they were kept, else from the sum of the
    outputs.
    """
    given = {slot: tensors["upstream." + slot] for slot in outputs if "upstream." + slot in tensors}
    if given:
        torch.autograd.backward(
            [outputs[slot] for slot in given],
            [grad.to(outputs[slot].dtype) for slot, grad in given.items()],
        )
    else:
        sum(out.sum() for out in outputs.values() if out.requires_grad).backward()


def autocast(case: dict[str, Any], where: Conditions) -> Any:
    """The autocast that was on, unless the element types are other ones here."""
    wanted = case.get("autocast")
    if not wanted or where.wide:
        return contextlib.nullcontext()
    return torch.autocast(where.target.partition(":")[0], dtype=element_type(wanted))


def collect(values: Any, path: str, into: dict[str, Any]) -> None:
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            into[f"{path}{i}"] = value
        elif isinstance(value, (tuple, list)):
            collect(value, f"{path}{i}.", into)


def clean_results(
    case: dict[str, Any], stored: dict[str, Any], where: Conditions, operator: Any
) -> Reference:
    """The call on the CPU, in float64 and in its own types, by what is loaded in this process."""
    own = Conditions(case["device"], "cpu", where.wide)
    own.seed = where.seed
    plain = make_call(case, stored, own)
    exact = plain
    if not is_random(operator, case["args"]):  # other types draw other numbers
        with contextlib.suppress(*UNSUPPORTED):
            exact = make_call(case, stored, Conditions(case["device"], "cpu", WIDEST))
    return Reference(exact, plain, "float64 on the CPU, kernels of a clean process")


def save_results(path: str, reference: Reference) -> None:
    """Write results where another process reads them; complex numbers as pairs."""
    content = {}
    for name, results in (("exact", reference.exact), ("plain", reference.plain or {})):
        for slot, value in results.items():
            pairs = (
                torch.view_as_real(value.detach().resolve_conj())
                if value.is_complex()
                else value.detach()
            )
            content[f"{name}{'~' if value.is_complex() else ' '}{slot}"] = (
                pairs.contiguous().clone()
            )
    write_tensors(path, content)


def load_results(path: str) -> Reference:
    results: dict[str, dict[str, Any]] = {"exact": {}, "plain": {}}
    for key, value in read_tensors(path).items():
        results[key[:5]][key[6:]] = torch.view_as_complex(value) if key[5] == "~" else value
    return Reference(
        results["exact"], results["plain"], "float64 on the CPU, kernels of a clean process"
    )


def own_results(
    case: dict[str, Any], stored: dict[str, Any], where: Conditions, operator: Any
) -> Reference:
    """Results to judge by from this very process: float64 on the CPU, by other code than the
    suspected kernel where there is some.
    """
    if is_random(operator, case["args"]):
        raise CannotTry("a random operator has nothing to be judged by: others draw other numbers")
    if where.target != "cpu":
        clean = clean_results(case, stored, where, operator)
        return Reference(clean.exact, clean.plain, "float64 on the CPU")
    decomposed = Decomposed(operator)
    known = decomposed.instead is not None and case["failure"]["kind"] == "mismatch"
    wide = Conditions(case["device"], "cpu", WIDEST)
    try:
        with decomposed if known else contextlib.nullcontext():
            exact = make_call(case, stored, wide)
        if known:  # some decompositions give what the kernel keeps for its gradient in another form
            like = make_call(case, stored, wide)
            exact = {
                slot: value
                for slot, value in exact.items()
                if slot in like and value.shape == like[slot].shape
            }
    except UNSUPPORTED as error:
        raise CannotTry("not to be had in float64 on the CPU: " + first_line(error)) from error
    return Reference(
        exact, None, "PyTorch's decomposition in float64" if known else "float64 on the CPU"
    )


def foreign_results(where: Conditions, cast: str | None, allowed: list[str]) -> Reference:
    """Results of a process that loads none of the libraries under suspicion; CannotTry when it has
    no such operator.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "results.safetensors")
        command = [
            sys.executable,
            str(HERE / Path(__file__).name),
            "--reference",
            path,
            "--seed",
            str(where.seed),
        ]
        command += [word for pattern in allowed for word in ("--allow", pattern)] + (
            ["--dtype", cast] if cast else []
        )
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [
                f"exit status {done.returncode}"
            ]
            raise CannotTry(printable(lines[-1]))
        return load_results(path)


class Judge:
    """Has at hand what a call is judged by; worked out when first asked for, and once."""

    def __init__(
        self, operator: Any, imports: list[str], cast: str | None, allowed: list[str]
    ) -> None:
        self.operator = operator
        self.imports = imports
        self.cast = cast
        self.allowed = allowed
        self.known: dict[int, Reference] = {}

    def reference(
        self, case: dict[str, Any], stored: dict[str, Any], where: Conditions
    ) -> Reference:
        seed = where.seed if is_random(self.operator, case["args"]) else 0
        if seed not in self.known:
            try:
                self.known[seed] = self._work_out(case, stored, where)
            except CannotTry:
                if not case["failure"].get("witnesses"):
                    raise
                self.known[seed] = Reference({}, None, "")
        return self.known[seed]

    def _work_out(
        self, case: dict[str, Any], stored: dict[str, Any], where: Conditions
    ) -> Reference:
        if self.imports:
            try:
                return foreign_results(where, self.cast, self.allowed)
            except CannotTry:
                pass  # the operator is the library's own: its float64 is the best there is
        return own_results(case, stored, where, self.operator)


def judge_overflow(
    case: dict[str, Any], stored: dict[str, Any], outputs: dict[str, Any]
) -> Finding:
    """Integer overflow or saturation shows when the true result, in wider arithmetic, does not fit
    the output's type.
    """
    eight = any(out.dtype is torch.int64 for out in outputs.values())
    kinds = {**WIDEST, "int": torch.float64 if eight else torch.int64}
    try:
        wide = make_call(case, stored, Conditions(case["device"], "cpu", kinds))
    except UNSUPPORTED as error:
        same = [
            row["slot"]
            for row in case["outputs"]
            if row["slot"] in outputs and equals_recorded(row, outputs[row["slot"]])
        ]
        sentence = "equals the recorded one" if same else "differs from the recorded one"
        return Finding(
            f"no wider arithmetic for this operator ({first_line(error)}); the output {sentence}",
            shown=bool(same),
        )
    words, pattern = [], {}
    for slot, out in outputs.items():
        count = beyond(wide[slot], out) if slot in wide else 0
        if count:
            pattern[slot] = {"classes": ["beyond"]}
            words.append(
                f"{count} of {out.numel()} true results of output {slot} do not fit "
                f"{type_name(out)}"
            )
    return Finding(
        "; ".join(words) or "every true result fits the output's type", pattern, shown=bool(words)
    )


def against_recorded(case: dict[str, Any], outputs: dict[str, Any]) -> list[str]:
    """How far the outputs are from the recorded ones, where their values were kept."""
    if not (HERE / "expected.safetensors").exists():
        return []
    expected, sentences = load_tensors("expected.safetensors"), []
    for row in case["outputs"]:
        slot, out = row["slot"], outputs.get(row["slot"])
        if (
            out is None
            or row["key"] is None
            or type_name(out) != row["dtype"]
            or list(out.shape) != row["shape"]
        ):
            continue
        here, was = (
            out.detach().cpu().contiguous(),
            restore(expected[row["key"]], row["dtype"], row["shape"]),
        )
        if torch.equal(here.reshape(-1).view(torch.uint8), was.reshape(-1).view(torch.uint8)):
            sentences.append(f"same  {slot:<8} bit for bit the recorded output")
            continue
        wide = torch.complex128 if here.is_complex() else torch.float64
        apart = (here.to(wide) - was.to(wide)).abs()
        apart = apart[torch.isfinite(apart)]
        sentences.append(
            f"near  {slot:<8} finite elements at most "
            f"{apart.max().item() if apart.numel() else 0:.3g} from the recorded ones"
        )
    return sentences


class Trial:
    """What one call gave."""

    def __init__(self, outputs: dict[str, Any], finding: Finding) -> None:
        self.outputs = outputs
        self.seen = {slot: statistics(out) for slot, out in outputs.items()}
        self.finding = finding


def attempt(case: dict[str, Any], stored: dict[str, Any], where: Conditions, judge: Judge) -> Trial:
    """Make the call once and judge it by the kind of failure that was recorded."""
    kind = case["failure"]["kind"]
    try:
        given = build_tensors(case, stored, where)
        before = Kept(given) if kind == "memory" else None
        outputs = make_call(case, stored, where, given)
    except CannotTry:
        raise
    except Exception as error:
        if kind != "exception":
            raise CannotTry(
                f"the call raised {type(error).__name__}: {first_line(error)}"
            ) from error
        return Trial({}, judge_error(case, error))
    trial = Trial(outputs, Finding("nothing wrong was recorded", shown=False))
    if kind == "nonfinite":
        trial.finding = judge_nonfinite(case, trial.seen)
    elif kind in ("integer-overflow", "saturation"):
        trial.finding = judge_overflow(case, stored, outputs)
    elif before is not None:
        trial.finding = judge_memory(judge.operator, before, outputs)
    elif kind == "mismatch":
        trial.finding = judge_mismatch(case, outputs, judge.reference(case, stored, where))
    elif kind in ("crash", "hang", "exception"):
        trial.finding = Finding("the call returned", shown=False)
    elif kind != "none":
        raise CannotTry(f"this script cannot judge a failure of kind {printable(kind)}")
    elif judge.imports or where.target != "cpu":
        trial.finding = judge_unasked(case, stored, where, outputs, judge)
    return trial


def judge_unasked(
    case: dict[str, Any],
    stored: dict[str, Any],
    where: Conditions,
    outputs: dict[str, Any],
    judge: Judge,
) -> Finding:
    """Nothing was recorded as wrong; where trusted kernels are at hand, the outputs are held
    against them all the same.
    """
    try:
        reference = judge.reference(case, stored, where)
        if reference.plain is not None:
            finding = judge_mismatch(case, outputs, reference)
            return Finding(
                "nothing wrong was recorded; " + finding.told,
                finding.pattern,
                shown=finding.shown,
                grade=finding.grade,
            )
    except (CannotTry, *UNSUPPORTED):
        pass
    return Finding("nothing wrong was recorded", shown=False)


def header(case: dict[str, Any], stored: dict[str, Any], where: Conditions) -> list[str]:
    lines = [f"{OPERATOR}  on {where.target}, torch {torch.__version__}"]
    lines += [f"  {key:<8} {printable(case[key])}" for key in ("source", "module") if case.get(key)]
    tensors = build_tensors(case, stored, where)
    lines += [
        f"  in    {slot:<8} {describe(statistics(tensor))}" for slot, tensor in tensors.items()
    ]
    return lines + [
        f"  was   {row['slot']:<8} {describe({**row, **row['stats']})}" for row in case["outputs"]
    ]


def conditions(
    case: dict[str, Any], options: argparse.Namespace, notes: list[str]
) -> tuple[Conditions, Any]:
    """Where the call is made, and the element type that was asked for."""
    device = usable_device(options.device or case["run_on"] or case["device"], notes)
    cast = options.dtype or case["run_as"]
    return Conditions(case["device"], device, widening(cast) if cast else {}), cast


def run(case: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Make the call as often as asked; returns what --json prints."""
    notes: list[str] = [printable(note) for note in case["warnings"]]
    imports = options.imports + case["imports"]
    operator = find_operator(imports, options.allowed)
    where, cast = conditions(case, options, notes)
    if case["flags"].get("deterministic"):
        torch.use_deterministic_algorithms(True, warn_only=True)
    if is_random(operator, case["args"]) and not case["random"]["states"]:
        notes.append(
            "a random operator whose generator state was not recorded: seeds 0, 1, … are used"
        )
    stored, judge = (
        load_tensors("inputs.safetensors"),
        Judge(operator, imports, cast, options.allowed),
    )
    lines = header(case, stored, where)
    trials = []
    for where.seed in range(options.repeat):
        trials.append(attempt(case, stored, where, judge))
        if device_failure(trials[-1].finding.told) is not None:
            break  # a device that has stopped makes no other trial in this process
    last = next((trial for trial in trials if trial.finding.shown), trials[-1])
    if case["failure"]["kind"] in ("mismatch", "memory") and not last.finding.shown:
        notes.append(
            "an output was wrong when it was recorded: the fault comes and goes, or needs the "
            "calls before this one"
        )
    lines += [f"  out   {slot:<8} {describe(tensor)}" for slot, tensor in last.seen.items()]
    more = [] if cast else against_recorded(case, last.outputs)
    if case["failure"]["kind"] == "nonfinite" and last.outputs and not options.no_wide:
        try:
            more += wider_results(case, last.outputs, judge.reference(case, stored, where))
        except CannotTry as reason:
            more.append(f"wide  {reason}")
    lines += ["  " + line for line in more] + ["  note  " + note for note in notes]
    return verdict(
        [trial.finding.shown for trial in trials],
        last.finding.told,
        lines,
        device=where.target,
        seen=last.seen,
    )


def verdict(shown: list[bool], reason: str, lines: list[str], **more: Any) -> dict[str, Any]:
    word = "reproduced" if all(shown) else "flaky" if any(shown) else "not reproduced"
    counted = f" {sum(shown)}/{len(shown)}" if word == "flaky" else ""
    lines = [*lines, f"{word}{counted}: {reason}"]
    return {
        "verdict": word,
        "shown": sum(shown),
        "tried": len(shown),
        "reason": reason,
        "lines": lines,
        **more,
    }


def survive(case: dict[str, Any], options: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """For a call in which the recorded process died or stood still: make it in a child, whose end
    is watched.
    """
    kind, limit = case["failure"]["kind"], options.limit or case.get("limit") or LIMIT
    command = [sys.executable, str(Path(__file__).resolve()), *argv, "--inside", "--repeat", "1"]
    notes, shown, ends = list(map(printable, case["warnings"])), [], []
    where, _ = conditions(case, options, notes)
    lines = header(case, load_tensors("inputs.safetensors"), where) + [
        "  note  " + note for note in notes
    ]
    for _ in range(options.repeat):
        code, output = watched(command, limit)
        if code in (2, 101, 125):
            raise CannotTry(output[-1] if output else f"exit code {code}")
        died = f"the process that makes the call ends by exit status {code}"
        hung = f"the call does not return within {limit:g} s"
        ends.append(hung if code is None else "the call returned" if code in (0, 1) else died)
        # What was killed from outside stood still, or the kernel killed it for what it did: ending
        # by a signal shows that too.
        shown.append(code is None or code < 0 if kind == "hang" else code not in (0, 1, None))
    return verdict(shown, ends[shown.index(True)] if any(shown) else ends[-1], lines)


def watched(command: list[str], limit: float) -> tuple[Any, list[str]]:
    """Exit status and last lines of a child; None when its call had not returned limit seconds
    after it began.
    """
    with tempfile.TemporaryFile() as out, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
    ) as child:
        begun, deadline = False, time.monotonic() + 300
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            if not begun and BEGUN in os.pread(out.fileno(), 1 << 16, 0):
                begun, deadline = True, time.monotonic() + limit
        code = child.poll()
        if code is None:
            child.kill()
            child.wait()
            if not begun:
                raise CannotTry("the process did not come to the call within 300 s")
        text = os.pread(out.fileno(), 1 << 20, 0).decode("utf-8", "replace")
        return code, [printable(line) for line in text.splitlines() if line.encode() != BEGUN][-20:]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Make one recorded call of {OPERATOR} again.")
    parser.add_argument(
        "--device", help="device to use instead of the recorded one: cpu, cuda:0, npu:0"
    )
    parser.add_argument(
        "--dtype", help="element type to use instead of the floating ones: float32, float64"
    )
    parser.add_argument(
        "--no-wide", action="store_true", help="skip the float64 calculation on the CPU"
    )
    parser.add_argument(
        "--limit", type=float, help=f"seconds after which a call counts as hanging [{LIMIT:g}]"
    )
    for hidden in ("--reference", "--seed"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parsed(parser, argv, library="module, .py file or library")


def reference_only(options: argparse.Namespace) -> int:
    """The process that foreign_results starts."""
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    where = Conditions(case["device"], "cpu", widening(options.dtype) if options.dtype else {})
    where.seed = int(options.seed)
    try:
        save_results(
            options.reference,
            clean_results(
                case, load_tensors("inputs.safetensors"), where, find_operator([], options.allowed)
            ),
        )
    except (CannotTry, *UNSUPPORTED) as error:
        print(first_line(error), file=sys.stderr)
        return 125
    return 0


def judged(options: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """The verdict of this process, or of one that may die."""
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    if options.inside:
        print(BEGUN.decode(), flush=True)
    alone = case["failure"]["kind"] in ("crash", "hang") and not options.inside
    return survive(case, options, argv) if alone else run(case, options)


def main(argv: list[str]) -> int:
    options = parse(argv)
    if options.reference:
        return reference_only(options)
    return answered(lambda: judged(options, argv), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
