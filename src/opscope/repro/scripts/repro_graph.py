#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A part of a graph of torch.compile, alone: compiled, and operator by operator.

Needs torch, nothing else. --code prints a program of plain torch code that shows
the same. Exit code: 1 the results differ as recorded, 0 they do not, 125 it cannot be tried here
(back end, function or library missing), 101 this script itself failed.
"""

from __future__ import annotations

import argparse
import ctypes  # noqa: F401 - for what is stored
import importlib
import importlib.util
import json
import math
import operator
import sys
import traceback
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError as missing:
    print(f"cannot be tried here: {missing}; install torch", file=sys.stderr)
    sys.exit(125)

# --- parts ---
from opscope.repro.scripts.stored import places_of, read_tensors  # script.py puts its text here

# --- end of parts ---

HERE = Path(__file__).resolve().parent
INPUTS = "inputs.safetensors"
NAMESPACES = ("aten", "prims")
# of module operator, what only computes
ARITHMETIC = frozenset(
    {
        "abs",
        "add",
        "and_",
        "eq",
        "floordiv",
        "ge",
        "getitem",
        "gt",
        "iadd",
        "iand",
        "ifloordiv",
        "imatmul",
        "imod",
        "imul",
        "inv",
        "invert",
        "ior",
        "ipow",
        "isub",
        "itruediv",
        "ixor",
        "le",
        "lshift",
        "lt",
        "matmul",
        "mod",
        "mul",
        "ne",
        "neg",
        "not_",
        "or_",
        "pos",
        "pow",
        "rshift",
        "setitem",
        "sub",
        "truediv",
        "xor",
    }
)
# of torch's own functions and methods, what touches more than its tensors
REFUSED = frozenset({"from_file", "share_memory_", "backward", "apply_", "map_", "map2_"})
MOST_SHOWN = 64  # elements of a memory that --code writes out


# where functions of tensors are looked for: "torch" holds much besides
PLACES: dict[str, Any] = {
    "torch": torch._C._VariableFunctions,
    "torch.functional": torch.functional,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    **{
        f"torch._C.{name}": getattr(torch._C, name)
        for name in ("_nn", "_special", "_linalg", "_fft")
    },
    "torch.special": torch.special,
    "torch.fft": torch.fft,
}


class CannotTryError(Exception):
    """Why the part cannot be tried here."""


def function(name: str) -> Any:
    """A function by its name, of those that touch only their tensors."""
    words = name.split(".")
    if not all(word.isidentifier() for word in words) or words[-1] in REFUSED:
        raise CannotTryError(f"{name!r} is not called at a file's word")
    if words[0] == "operator" and len(words) == 2 and words[1] in ARITHMETIC:
        return getattr(operator, words[1])
    if words[:2] == ["torch", "ops"] and len(words) == 5 and words[2] in NAMESPACES:
        return getattr(getattr(getattr(torch.ops, words[2]), words[3]), words[4])
    module = PLACES.get(".".join(words[:-1]))
    callable_ = getattr(module, words[-1], None) if module is not None else None
    if not callable(callable_) or isinstance(callable_, type) or words[-1].startswith("__"):
        raise CannotTryError(f"torch {torch.__version__} has no function {name}")
    return getattr(torch, words[-1], callable_) if len(words) == 2 else callable_


def method(name: str) -> str:
    """The name of a method of tensors, of those that touch only their tensors."""
    if not name.isidentifier() or name.startswith("__") or name in REFUSED:
        raise CannotTryError(f"method {name!r} is not called at a file's word")
    if not callable(getattr(torch.Tensor, name, None)):
        raise CannotTryError(f"torch {torch.__version__} has no method {name} of tensors")
    return name


def argument(value: Any, made: dict[str, Any]) -> Any:
    """An argument of a node from its form as data."""
    if isinstance(value, list):
        return [argument(each, made) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in {"tuple", "slice"}:
        parts = [argument(each, made) for each in content]
        return tuple(parts) if kind == "tuple" else slice(*parts)
    if kind == "node":
        return made[content]
    return constant(kind, content)


def constant(kind: str, content: Any) -> Any:
    """A value that is no tensor."""
    if kind == "float":
        return float(content)
    if kind == "device":
        return torch.device("cpu")
    if kind == "ellipsis":
        return Ellipsis
    value = getattr(torch, str(content), None)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return value
    raise CannotTryError(f"torch {torch.__version__} has no {content}")


def build(data: dict[str, Any]) -> torch.fx.GraphModule:
    """The part as a module."""
    graph = torch.fx.Graph()
    made: dict[str, Any] = {}
    for number, row in enumerate(data["inputs"]):
        made[row["name"]] = graph.placeholder(f"x{number}")
    for row in data["nodes"]:
        args = tuple(argument(each, made) for each in row["args"])
        kwargs = {name: argument(each, made) for name, each in row["kwargs"].items()}
        if not all(name.isidentifier() for name in kwargs):
            raise CannotTryError("an argument's name is none")
        if row["kind"] == "call_method":
            made[row["name"]] = graph.call_method(method(row["target"]), args, kwargs)
        else:
            made[row["name"]] = graph.call_function(function(row["target"]), args, kwargs)
    graph.output(tuple(made[name] for name in data["outputs"]))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def inputs(data: dict[str, Any], stored: dict[str, Any]) -> list[Any]:
    """The inputs, each time anew: views of the memories that they share."""
    memories = [stored[f"m{number}"].clone() for number in range(len(data["memories"]))]
    return [
        torch.as_strided(memories[row["memory"]], row["shape"], row["stride"], row["offset"])
        .detach()
        .requires_grad_(bool(row["trained"]))
        for row in data["inputs"]
    ]


def results(call: Any, given: list[Any]) -> list[Any]:
    """Outputs, then inputs as they are afterwards; where inputs are trained, their gradients."""
    trained = [each for each in given if each.requires_grad]
    if not trained:
        with torch.no_grad():
            return [*call(*given), *given]
    made = [each for each in call(*given) if torch.is_tensor(each) and each.requires_grad]
    random = torch.Generator().manual_seed(0)
    begun = [
        torch.randn(each.shape, generator=random, dtype=torch.float64).to(each.dtype)
        for each in made
    ]
    return list(torch.autograd.grad(made, trained, begun, allow_unused=True))


def element(value: Any, witness: dict[str, Any]) -> float:
    """The element that deviated."""
    if value.is_complex():
        value = torch.view_as_real(value)
    return float(value.detach()[tuple(witness["element"])].to(torch.float64))


def attempt(data: dict[str, Any], stored: dict[str, Any]) -> tuple[bool, str]:
    """Whether the results differ, and what they are."""
    witness = data["witness"]
    number = witness["place"]
    plain = results(build(data), inputs(data, stored))[number]
    torch._dynamo.reset()
    compiled = torch.compile(build(data), backend=data["backend"])
    other = results(compiled, inputs(data, stored))[number]
    expected, got = element(plain, witness), element(other, witness)
    tolerance = float(witness["tolerance"])
    apart = (
        abs(got - expected) > tolerance
        if math.isfinite(got) and math.isfinite(expected)
        else not (got == expected or (math.isnan(got) and math.isnan(expected)))
    )
    what = "gradient" if any(row["trained"] for row in data["inputs"]) else "result"
    line = (
        f"element {witness['element']} of {what} {number}: {got:g} compiled by {data['backend']},"
        f" {expected:g} operator by operator, {tolerance:g} allowed"
    )
    return apart, line


def program(data: dict[str, Any], stored: dict[str, Any]) -> str:
    """The part, its inputs and both ways to make it as one program."""
    body = build(data).code.strip().replace("def forward(self, ", "def part(", 1)
    names = [f"x{number}" for number in range(len(data["inputs"]))]
    lines = ["import torch"]
    lines += ["from math import inf, nan"] if "inf" in body or "nan" in body else []
    lines += ["from torch import device"] if "device(" in body else []
    memories = [stored[f"m{number}"] for number in range(len(data["memories"]))]
    places: dict[str, Any] = {}
    if any(each.numel() > MOST_SHOWN for each in memories):
        places = places_of((HERE / INPUTS).read_bytes())
        lines += [
            "",
            f'with open("{INPUTS}", "rb") as file:',
            "    stored = bytearray(file.read())",
        ]
    lines += ["", "", body, "", "", "def inputs():"]
    for number, each in enumerate(memories):
        lines.append(f"    m{number} = {_shown(each, places.get(f'm{number}'))}")
    for name, row in zip(names, data["inputs"]):
        view = (
            f"torch.as_strided(m{row['memory']}, {row['shape']}, {row['stride']}, {row['offset']})"
        )
        trained = ".detach().requires_grad_()" if row["trained"] else ""
        lines.append(f"    {name} = {view}{trained}")
    lines += [f"    return [{', '.join(names)}]", "", ""]
    lines += [
        f"for function in (part, torch.compile(part, backend={json.dumps(str(data['backend']))})):",
        "    given = inputs()",
        "    made = function(*given)",
    ]
    if any(row["trained"] for row in data["inputs"]):
        lines += [
            "    sum(each.sum() for each in made if each.requires_grad).backward()",
            "    print(made, [each.grad for each in given])",
        ]
    else:
        lines += ["    print(made, given)"]
    return "\n".join(lines)


def _shown(memory: Any, place: Any) -> str:
    if memory.numel() > MOST_SHOWN:
        where = f"dtype={memory.dtype}, count={memory.numel()}, offset={place[2]}"
        return f"torch.frombuffer(stored, {where}).clone()"
    if not memory.any():
        return f"torch.zeros({memory.numel()}, dtype={memory.dtype})"
    numbers = ", ".join(
        f'float("{each}")' if isinstance(each, float) and not math.isfinite(each) else repr(each)
        for each in memory.tolist()
    )
    return f"torch.tensor([{numbers}], dtype={memory.dtype})"


def load(name: str) -> None:
    """Import what registers a back end or an operator: a module's name or a .py file."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(name).stem] = module
    spec.loader.exec_module(module)


def tried(options: Any) -> dict[str, Any]:
    """The verdict, as opscope reads it."""
    for name in options.imports:
        load(name)
    data = json.loads((HERE / "graph.json").read_text(encoding="utf-8"))
    if data["backend"] not in torch._dynamo.list_backends(exclude_tags=()):
        raise CannotTryError(
            f"torch.compile knows no back end {data['backend']!r} here; --import it"
        )
    stored = read_tensors(HERE / INPUTS)
    attempts = [attempt(data, stored) for _ in range(options.repeat)]
    shown = sum(apart for apart, _ in attempts)
    verdict = "not reproduced" if not shown else "reproduced"
    return {
        "verdict": verdict if shown in (0, len(attempts)) else "flaky",
        "shown": shown,
        "tried": len(attempts),
        "device": "cpu",
        "reason": f"torch {torch.__version__}",
        "lines": [*dict.fromkeys(line for _, line in attempts), ""],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--code", action="store_true", help="print a program of torch code")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--import", dest="imports", action="append", default=[])
    parser.add_argument("--allow", action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.code:
            data = json.loads((HERE / "graph.json").read_text(encoding="utf-8"))
            print(program(data, read_tensors(HERE / INPUTS)))
            return 0
        verdict = tried(options)
    except (CannotTryError, ImportError) as reason:
        print(f"cannot be tried here: {reason}", file=sys.stderr)
        return 125
    except Exception:  # noqa: BLE001 - of whatever the compiler raises
        traceback.print_exc()
        return 101
    if options.json:
        print(json.dumps(verdict))
    else:
        print("\n".join([*filter(None, verdict["lines"]), verdict["verdict"]]))
    return 1 if verdict["shown"] else 0


if __name__ == "__main__":
    sys.exit(main())
