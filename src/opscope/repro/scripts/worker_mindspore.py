# SPDX-License-Identifier: Apache-2.0
"""Makes many candidates of one repro of a MindSpore primitive in one process; worker.py says what
is asked and answered.

MindSpore's threads do not survive a fork, so candidates are made here, in this process, which is
started again when one ends it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def load(path: str, imports: list[str], allowed: list[str]) -> Any:
    """The repro script as a module, and the libraries that register its primitive."""
    spec = importlib.util.spec_from_file_location("opscope_case", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    script: Any = importlib.util.module_from_spec(spec)
    sys.modules["opscope_case"] = script
    spec.loader.exec_module(script)
    for module in imports:
        importlib.import_module(module)
    script.ALLOWED = allowed
    return script


def make(script: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Make one candidate's call as often as asked, and judge it; with `device` its results are left
    for the parent to judge.
    """
    script.HERE = Path(request["folder"])
    exec(request["code"], vars(script))  # noqa: S102 - the operator's name, as opscope writes it into repro.py
    case = json.loads((script.HERE / "case.json").read_text(encoding="utf-8"))
    kept = script.load_tensors("inputs.safetensors")
    if "device" in request:
        return leave(script, case, kept, request)
    try:
        trials = [script.attempt(case, kept, case["run_as"]) for _ in range(request["repeat"])]
    except script.CannotTry as reason:
        return {"status": "cannot", "told": str(reason)}
    shown, told, outputs = next((trial for trial in trials if trial[0]), trials[-1])
    seen = {slot: script.statistics(out) for slot, out in outputs.items()}
    return {
        "status": "done",
        "shown": sum(trial[0] for trial in trials),
        "tried": len(trials),
        "told": told,
        "seen": seen,
        "pattern": pattern_of(script, case, kept, seen) if shown else {},
        "grade": 1.0,
    }


def leave(
    script: Any, case: dict[str, Any], kept: dict[str, Any], request: dict[str, Any]
) -> dict[str, Any]:
    """Write what the call gives to results.N.SLOT.npy, in a wider type to wide.SLOT.npy, of nudged
    inputs to nudged.N.SLOT.npy.
    """
    try:
        script.choose_device(request["device"])
        types = {}
        for number in range(request["repeat"]):
            made = script.make_tensors(case, kept, None)
            types = {slot: {"dtype": str(tensor.dtype).lower()} for slot, tensor in made.items()}
            save(script, f"results.{number}", made)
    except script.CannotTry as reason:
        return {"status": "cannot", "told": str(reason)}
    except Exception as error:  # noqa: BLE001 - a kernel that this machine lacks
        return {
            "status": "cannot",
            "told": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}",
        }
    return {
        "status": "done",
        "told": widened(script, case, kept),
        "tried": request["repeat"],
        "seen": types,
    }


def widened(script: Any, case: dict[str, Any], kept: dict[str, Any]) -> str:
    """The widest type in which the primitive can be called, its results written; empty where there
    is none.
    """
    wider = {
        "float64": True,
        "float32": all(row["dtype"] not in ("float32", "float64") for row in case["tensors"]),
    }
    for name in (name for name, useful in wider.items() if useful):
        try:
            save(script, "wide", script.make_tensors(case, kept, name))
            for number in range(2):
                save(
                    script,
                    f"nudged.{number}",
                    script.make_tensors(case, nudged(script, case, kept, number), name),
                )
        except Exception:  # noqa: BLE001, S112 - the next type
            continue
        return name
    return ""


def nudged(script: Any, case: dict[str, Any], kept: dict[str, Any], seed: int) -> dict[str, Any]:
    """The floating inputs off by up to one rounding of the call's finest type: what the result then
    loses, no kernel of it can keep.
    """
    chance, moved = script.np.random.default_rng(seed), dict(kept)
    unit = min(
        (
            script.UNITS[row["dtype"]]
            for row in (*case["tensors"], *case["outputs"])
            if row["dtype"] in script.UNITS
        ),
        default=0.0,
    )
    for row in case["tensors"]:
        key = row["key"]
        if key is not None and row["dtype"] in script.UNITS:
            values = kept[key].astype(script.np.float64)
            moved[key] = values * (1 + unit * chance.uniform(-1, 1, values.shape))
    return moved


def save(script: Any, name: str, made: dict[str, Any]) -> None:
    for slot, tensor in made.items():
        script.np.save(
            script.HERE / f"{name}.{slot}.npy", script.to_array(tensor), allow_pickle=False
        )


def pattern_of(
    script: Any, case: dict[str, Any], kept: dict[str, Any], seen: dict[str, Any]
) -> dict[str, Any]:
    """Classes of non-finite values by output, and whether float64 is finite there: an inf / inf
    that cutting made is another failure.
    """
    try:
        exact = {
            slot: script.statistics(out)
            for slot, out in script.make_call(case, kept, "float64").items()
        }
    except Exception:  # noqa: BLE001 - a kernel without float64
        exact = {}
    pattern = {}
    for slot, told in seen.items():
        classes = [name for name in script.CLASSES if told.get(name)]
        wide = [name for name in script.CLASSES if exact.get(slot, {}).get(name)]
        if classes or case["failure"]["kind"] != "nonfinite":
            pattern[slot] = {"classes": classes, "exact": wide}
    return pattern


def main(arguments: list[str]) -> int:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # primitives may print
    os.dup2(silence, 2)
    try:
        script = load(arguments[0], json.loads(arguments[1]), json.loads(arguments[2]))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - said to the parent, who decides
        missing = (
            "mindspore is not installed in this environment"
            if isinstance(error, SystemExit)
            else f"{type(error).__name__}: {error}"
        )
        print(json.dumps({"status": "cannot", "told": missing}), file=channel, flush=True)
        return 125
    print(json.dumps({"status": "ready"}), file=channel, flush=True)
    for line in sys.stdin:
        try:
            answer = make(script, json.loads(line))
        except Exception as error:  # noqa: BLE001 - a candidate that cannot even be built is an answer
            answer = {"status": "cannot", "told": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=channel, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
