#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B905, FBT003, N818, ARG001
"""One operator call, alone: rebuilds the tensors it read, makes the call, says whether the recorded failure shows.

Needs torch and safetensors, nothing else. Exit code: 1 the failure shows, 0 it does not, 125 it cannot be tried here
(device, operator, element type or library missing), 101 this script itself failed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

try:
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"cannot be tried here: {missing}; install torch and safetensors", file=sys.stderr)
    sys.exit(125)

# --- the call ---
OPERATOR = "aten::bmm.default"


def call(t: Any, dtype: Any, device: Any, generator: Any) -> Any:
    """The call as it was recorded; t holds its tensors by slot, dtype and device turn names into what is used here."""
    return torch.ops.aten.bmm.default(t["0"], t["1"])


# --- end of the call ---

HERE = Path(__file__).resolve().parent
CLASSES = {"nan": "NaN", "pos_inf": "inf", "neg_inf": "-inf"}
LIBRARIES = {"npu": "torch_npu", "torchvision": "torchvision", "torchaudio": "torchaudio"}
SHORT = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c"}
UNSUPPORTED = (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError)


class CannotTry(Exception):
    """The call cannot be made on this machine."""


class Conditions:
    """Where the call is made and in which element types: names of the recorded ones go in, those used here come out."""

    def __init__(self, recorded: str, device: str, wide: dict[str, Any]) -> None:
        self.recorded = recorded.partition(":")[0]
        self.target = device
        self.wide = wide  # kind of element type ("float", "complex", "int") -> the type used instead
        self.seed = 0
        self.states: dict[str, Any] = {}

    def dtype(self, name: str) -> Any:
        found = element_type(name)
        return self.wide.get(kind_of(found), found)

    def device(self, name: str) -> Any:
        # A tensor that lay on the CPU beside an accelerator (a scalar, say) stays there.
        moved = name.partition(":")[0] == self.recorded
        return torch.device(self.target if moved else name)

    def generator(self, name: str) -> Any:
        made = torch.Generator(device=self.device(name))
        state = self.states.get("generator:" + name)
        return made.manual_seed(self.seed) if state is None else made.set_state(state)


def element_type(name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise CannotTry(f"torch {torch.__version__} has no element type {printable(name)}")
    return found


def kind_of(dtype: Any) -> str:
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "float"
    return "bool" if dtype is torch.bool else "int"


def widening(name: str) -> dict[str, Any]:
    dtype = element_type(name)
    if kind_of(dtype) != "float":
        return {kind_of(dtype): dtype}
    return {"float": dtype, "complex": torch.complex128 if dtype is torch.float64 else torch.complex64}


def usable_device(name: str, notes: list[str]) -> str:
    """The device of this name, or the first of its kind when this machine has fewer; CannotTry when there is none."""
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


def find_operator(imports: list[str]) -> Any:
    namespace, _, rest = OPERATOR.partition("::")
    if imports:
        sys.path.append(str(Path.cwd()))
    try:
        for name in imports + ([LIBRARIES[namespace]] if namespace in LIBRARIES else []):
            load_library(name)
        found = getattr(torch.ops, namespace)
        for part in rest.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError, ImportError, OSError) as error:
        hint = "" if namespace == "aten" else "; --import the module that registers it"
        raise CannotTry(f"operator {OPERATOR}: {first_line(error)}{hint}") from error
    return found


def self_overlapping(shape: list[int], stride: list[int]) -> bool:
    """Whether two elements may lie at one address (a safe answer: yes when in doubt)."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(shape, stride) if size > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def fill(memory: Any, row: dict[str, Any], value: Any) -> None:
    """Write the kept elements where the tensor's strides put them; dimensions of stride 0 were kept once."""
    value = value.to(memory.dtype).to(memory.device)
    if value.numel() == 0:
        return
    if not self_overlapping(row["kept"], row["stride"]):
        memory.as_strided(row["kept"], row["stride"], row["offset"]).copy_(value)
        return
    places = torch.full(row["kept"], row["offset"], dtype=torch.int64, device=memory.device)
    for axis, (size, step) in enumerate(zip(row["kept"], row["stride"])):
        along = [size if i == axis else 1 for i in range(len(row["kept"]))]
        places += (torch.arange(size, device=memory.device) * step).reshape(along)
    memory[places.flatten()] = value.flatten()


def load_tensors(name: str) -> dict[str, Any]:
    try:
        return dict(load_file(str(HERE / name)))
    except (AttributeError, KeyError) as error:
        raise CannotTry(f"torch {torch.__version__} cannot read {name}: {first_line(error)}") from error


def restore(value: Any, name: str, shape: list[int]) -> Any:
    """Elements as they were kept; types that safetensors lacks were kept as bytes, which may lie unaligned in the file."""
    dtype = element_type(name)
    return (value if value.dtype is dtype else value.clone().view(dtype)).reshape(shape)


def build_tensors(case: dict[str, Any], kept: dict[str, Any], where: Conditions) -> dict[str, Any]:
    """The tensors of the call by slot, with their strides, offsets and shared memory."""
    memories: dict[Any, Any] = {}
    seen = {}
    # Recorded elements are written last, over invented ones of the same memory.
    for row in sorted(case["tensors"], key=lambda row: row["values"] == "recorded"):
        dtype, buffer = where.dtype(row["dtype"]), case["buffers"][row["buffer"]]
        # Bytes that several types look at cannot be shared once one of these is widened.
        shared = buffer["dtype"] is None and dtype is element_type(row["dtype"])
        key = (row["buffer"], "bytes" if shared else dtype)
        if key not in memories:
            of = torch.uint8 if shared else dtype
            memories[key] = torch.zeros(buffer["size"], dtype=of, device=where.device(row["device"]))
        memory = memories[key].view(dtype) if shared else memories[key]
        if row["key"] is not None:
            fill(memory, row, restore(kept[row["key"]], row["dtype"], row["kept"]))
        seen[row["slot"]] = memory.as_strided(row["shape"], row["stride"], row["offset"])
    return {row["slot"]: seen[row["slot"]] for row in case["tensors"]}


def set_random_state(case: dict[str, Any], kept: dict[str, Any], where: Conditions) -> None:
    where.states = {name: kept[key] for name, key in case["random"]["states"].items()}
    torch.manual_seed(where.seed)
    if "cpu" in where.states:
        torch.set_rng_state(where.states["cpu"])
    if "cuda" in where.states and where.target.startswith("cuda"):
        torch.cuda.set_rng_state(where.states["cuda"], where.target)


def make_call(case: dict[str, Any], kept: dict[str, Any], where: Conditions) -> dict[str, Any]:
    """Make the call once; returns its output tensors by slot, the arguments it wrote to included."""
    tensors = build_tensors(case, kept, where)
    set_random_state(case, kept, where)
    with torch.no_grad():
        returned = call(tensors, where.dtype, where.device, where.generator)
    outputs: dict[str, Any] = {}
    collect(returned if isinstance(returned, (tuple, list)) else (returned,), "", outputs)
    for row in case["outputs"]:
        if row["slot"] not in outputs and row["slot"] in tensors:
            outputs[row["slot"]] = tensors[row["slot"]]
    return outputs


def collect(values: Any, path: str, into: dict[str, Any]) -> None:
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            into[f"{path}{i}"] = value
        elif isinstance(value, (tuple, list)):
            collect(value, f"{path}{i}.", into)


def statistics(tensor: Any) -> dict[str, Any]:
    """Counts of NaN and infinities, smallest and largest finite element (complex: of the magnitude)."""
    x = tensor.detach().cpu()
    if x.is_complex():
        x = x.to(torch.complex128).abs()
    elif x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32 if x.is_floating_point() else torch.int64)
    counts = dict.fromkeys(CLASSES, 0)
    if x.is_floating_point():
        masks = {"nan": torch.isnan(x), "pos_inf": x == float("inf"), "neg_inf": x == -float("inf")}
        counts = {name: int(mask.sum()) for name, mask in masks.items()}
        x = x[torch.isfinite(x)]
    low, high = (x.min().item(), x.max().item()) if x.numel() else (None, None)
    return {"dtype": type_name(tensor), "shape": list(tensor.shape), "min": low, "max": high, **counts}


def type_name(tensor: Any) -> str:
    return str(tensor.dtype).partition(".")[2]


def describe(seen: dict[str, Any]) -> str:
    """One line for a tensor: f16[32, 64] x∈[-310, 298] 37 inf."""
    parts = re.match(r"([a-z]+)(\d.*)", seen["dtype"])
    name = printable(seen["dtype"]) if parts is None else SHORT.get(parts.group(1), parts.group(1)) + parts.group(2)
    text = f"{name}{seen['shape']}"
    if seen.get("min") is not None:
        text += f" x∈[{number(seen['min'])}, {number(seen['max'])}]"
    return text + "".join(f"  {seen[c]} {CLASSES[c]}" for c in CLASSES if seen.get(c))


def number(value: float) -> str:
    """Three digits, whole numbers below a million exactly: -310, 65504, 3.4e38, 0.00123."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def classes(seen: dict[str, Any]) -> list[str]:
    return [name for name in CLASSES if seen.get(name)]


def judge_nonfinite(case: dict[str, Any], seen: dict[str, Any]) -> tuple[bool, str]:
    """The failure shows when an output that was not finite has a class of non-finite values it had then."""
    told = []
    for slot, was in sorted(case["failure"]["outputs"].items()):
        here = classes(seen.get(slot, {}))
        same = [CLASSES[name] for name in was if name in here]
        if same:
            told.append(f"{' and '.join(same)} in output {slot}, as recorded{'' if here == was else ', in part'}")
    if told:
        return True, "; ".join(told)
    other = any(classes(one) for one in seen.values())
    return False, "other values that are not finite than recorded" if other else "the output is finite"


def judge_overflow(case: dict[str, Any], kept: dict[str, Any], outputs: dict[str, Any]) -> tuple[bool, str]:
    """Integer overflow or saturation shows when the true result, in wider arithmetic, does not fit the output's type."""
    eight = any(out.dtype is torch.int64 for out in outputs.values())
    kinds = {"float": torch.float64, "complex": torch.complex128, "int": torch.float64 if eight else torch.int64}
    try:
        wide = make_call(case, kept, Conditions(case["device"], "cpu", kinds))
    except UNSUPPORTED as error:
        same = [row["slot"] for row in case["outputs"] if row["slot"] in outputs and equals_recorded(row, outputs[row["slot"]])]
        told = "equals the recorded one" if same else "differs from the recorded one"
        return bool(same), f"no wider arithmetic for this operator ({first_line(error)}); the output {told}"
    found = []
    for slot, out in outputs.items():
        count = beyond(wide[slot], out) if slot in wide else 0
        if count:
            found.append(f"{count} of {out.numel()} true results of output {slot} do not fit {type_name(out)}")
    return bool(found), "; ".join(found) or "every true result fits the output's type"


def beyond(true: Any, out: Any) -> int:
    """How many of these true results the type of the output cannot hold."""
    if kind_of(out.dtype) not in ("int", "float") or true.is_complex():
        return 0
    limits = torch.iinfo(out.dtype) if kind_of(out.dtype) == "int" else torch.finfo(out.dtype)
    if not true.is_floating_point():
        return int(((true > int(limits.max)) | (true < int(limits.min))).sum())
    # Strictly beyond: a float64 of 2**63 may be a rounded 2**63 - 1. What wrapped around is off by 2**64 all the same.
    outside = (true > float(limits.max)) | (true < float(limits.min))
    if out.dtype is torch.int64:
        outside |= (true - out.detach().cpu().to(torch.float64)).abs() > 2.0**63
    return int(outside.sum())


def equals_recorded(row: dict[str, Any], out: Any) -> bool:
    stats, seen = row["stats"], statistics(out)
    return stats.get("min_int") is not None and (stats["min_int"], stats["max_int"]) == (seen["min"], seen["max"])


def judge_error(case: dict[str, Any], error: BaseException) -> tuple[bool, str]:
    was = case["failure"]["error"]
    text = f"{type(error).__name__}: {first_line(error)}"
    if type(error).__name__ == was["type"] and normal(str(error)) == normal(was["text"]):
        return True, text
    if isinstance(error, NotImplementedError) or "out of memory" in str(error).lower():
        raise CannotTry(text) from error
    return False, "another error: " + text


def normal(text: str) -> str:
    """An error text without what changes from run to run: addresses, numbers, spaces."""
    line = (text.strip().splitlines() or [""])[0]
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line)).strip()


def first_line(error: BaseException) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[0])


def printable(text: Any) -> str:
    """Text without control characters: what a run recorded must not drive a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))[:400]


def wider_results(case: dict[str, Any], kept: dict[str, Any], outputs: dict[str, Any]) -> list[str]:
    """What the same call gives in float64 on the CPU, for each output that was not finite."""
    kinds = {"float": torch.float64, "complex": torch.complex128}
    try:
        wide = make_call(case, kept, Conditions(case["device"], "cpu", kinds))
    except UNSUPPORTED as error:
        return ["wide  not to be had in float64 on the CPU: " + first_line(error)]
    told = []
    for slot in sorted(case["failure"]["outputs"]):
        if slot not in wide or slot not in outputs or outputs[slot].dtype is wide[slot].dtype:
            continue
        true = statistics(wide[slot])
        line = f"wide  {slot:<8} {describe(true)} in float64 on the CPU"
        largest, limit = max(abs(true["min"] or 0), abs(true["max"] or 0)), torch.finfo(outputs[slot].dtype).max
        if largest > limit:
            line += f"; {number(largest)} is beyond {number(limit)}, the largest {type_name(outputs[slot])}"
        else:
            line += "; the failure is there too" if classes(true) else "; wider arithmetic avoids the failure"
        told.append(line)
    return told


def against_recorded(case: dict[str, Any], outputs: dict[str, Any]) -> list[str]:
    """How far the outputs are from the recorded ones, where their values were kept."""
    if not (HERE / "expected.safetensors").exists():
        return []
    expected, told = load_tensors("expected.safetensors"), []
    for row in case["outputs"]:
        slot, out = row["slot"], outputs.get(row["slot"])
        if out is None or row["key"] is None or type_name(out) != row["dtype"] or list(out.shape) != row["shape"]:
            continue
        here, was = out.detach().cpu().contiguous(), restore(expected[row["key"]], row["dtype"], row["shape"])
        if torch.equal(here.reshape(-1).view(torch.uint8), was.reshape(-1).view(torch.uint8)):
            told.append(f"same  {slot:<8} bit for bit the recorded output")
            continue
        wide = torch.complex128 if here.is_complex() else torch.float64
        apart = (here.to(wide) - was.to(wide)).abs()
        apart = apart[torch.isfinite(apart)]
        told.append(f"near  {slot:<8} finite elements at most {apart.max().item() if apart.numel() else 0:.3g} from the recorded ones")
    return told


class Trial:
    """What one call gave."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.outputs = outputs
        self.seen = {slot: statistics(out) for slot, out in outputs.items()}
        self.shown, self.told = False, "nothing wrong was recorded"


def attempt(case: dict[str, Any], kept: dict[str, Any], where: Conditions) -> Trial:
    """Make the call once and judge it by the kind of failure that was recorded."""
    kind = case["failure"]["kind"]
    try:
        trial = Trial(make_call(case, kept, where))
    except CannotTry:
        raise
    except Exception as error:
        if kind != "exception":
            raise CannotTry(f"the call raised {type(error).__name__}: {first_line(error)}") from error
        trial = Trial({})
        trial.shown, trial.told = judge_error(case, error)
        return trial
    if kind == "nonfinite":
        trial.shown, trial.told = judge_nonfinite(case, trial.seen)
    elif kind in ("integer-overflow", "saturation"):
        trial.shown, trial.told = judge_overflow(case, kept, trial.outputs)
    elif kind in ("crash", "exception"):
        trial.told = "the call returned"
    elif kind != "none":
        raise CannotTry(f"this script cannot judge a failure of kind {printable(kind)}")
    return trial


def header(case: dict[str, Any], kept: dict[str, Any], where: Conditions) -> list[str]:
    lines = [f"{OPERATOR}  on {where.target}, torch {torch.__version__}"]
    lines += [f"  {key:<8} {printable(case[key])}" for key in ("source", "module") if case.get(key)]
    tensors = build_tensors(case, kept, where)
    lines += [f"  in    {slot:<8} {describe(statistics(tensor))}" for slot, tensor in tensors.items()]
    return lines + [f"  was   {row['slot']:<8} {describe({**row, **row['stats']})}" for row in case["outputs"]]


def run(case: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Make the call as often as asked; returns what --json prints."""
    notes: list[str] = [printable(note) for note in case["warnings"]]
    operator = find_operator(options.imports + case["imports"])
    device = usable_device(options.device or case["run_on"] or case["device"], notes)
    cast = options.dtype or case["run_as"]
    where = Conditions(case["device"], device, widening(cast) if cast else {})
    if case["flags"].get("deterministic"):
        torch.use_deterministic_algorithms(True, warn_only=True)
    if "nondeterministic_seeded" in str(getattr(operator, "tags", "")) and not case["random"]["states"]:
        notes.append("a random operator whose generator state was not recorded: seeds 0, 1, … are used")
    kept = load_tensors("inputs.safetensors")
    lines = header(case, kept, where)
    trials = []
    for where.seed in range(options.repeat):
        trials.append(attempt(case, kept, where))
    last = next((trial for trial in trials if trial.shown), trials[-1])
    lines += [f"  out   {slot:<8} {describe(one)}" for slot, one in last.seen.items()]
    more = [] if cast else against_recorded(case, last.outputs)
    if case["failure"]["kind"] == "nonfinite" and last.outputs and not options.no_wide:
        more += wider_results(case, kept, last.outputs)
    lines += ["  " + line for line in more] + ["  note  " + note for note in notes]
    return verdict(sum(trial.shown for trial in trials), len(trials), last.told, lines, device=device, seen=last.seen)


def verdict(shown: int, tried: int, told: str, lines: list[str], **more: Any) -> dict[str, Any]:
    word = "reproduced" if shown == tried else "flaky" if shown else "not reproduced"
    counted = f" {shown}/{tried}" if word == "flaky" else ""
    return {"verdict": word, "shown": shown, "tried": tried, "reason": told, "lines": [*lines, f"{word}{counted}: {told}"], **more}


def survive(options: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """For a call inside which the recorded process died: make it in a child, whose death is the failure."""
    command = [sys.executable, str(Path(__file__).resolve()), *argv, "--inside", "--repeat", "1"]
    shown, lines, code = 0, [], 0
    for _ in range(options.repeat):
        child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = [printable(line) for line in child.stdout.decode("utf-8", "replace").splitlines()[-20:]]
        if child.returncode in (2, 101, 125):
            raise CannotTry(lines[-1] if lines else f"exit code {child.returncode}")
        shown, code = shown + (child.returncode not in (0, 1)), child.returncode or code
    told = f"the process that makes the call ends by exit status {code}" if shown else "the call returned"
    return verdict(shown, options.repeat, told, [] if options.json else lines)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Make one recorded call of {OPERATOR} again.")
    parser.add_argument("--device", help="device to use instead of the recorded one: cpu, cuda:0, npu:0")
    parser.add_argument("--dtype", help="element type to use instead of the floating ones: float32, float64")
    parser.add_argument("--repeat", type=int, default=1, help="make the call this often")
    importing = "module, .py file or shared library that registers the operator"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=importing)
    parser.add_argument("--no-wide", action="store_true", help="skip the float64 calculation on the CPU")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error("--repeat wants at least 1")
    return options


def main(argv: list[str]) -> int:
    options = parse(argv)
    try:
        case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
        alone = case["failure"]["kind"] == "crash" and not options.inside
        result = survive(options, argv) if alone else run(case, options)
    except CannotTry as reason:
        result = {"verdict": "cannot be tried", "reason": str(reason), "lines": [f"cannot be tried here: {reason}"]}
    except Exception:  # noqa: BLE001 - a traceback's exit code, 1, would claim that the failure shows
        traceback.print_exc()
        return 101
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    print(json.dumps(result) if options.json else "\n".join(result["lines"]))
    return {"reproduced": 1, "flaky": 1, "not reproduced": 0}.get(str(result["verdict"]), 125)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
