# SPDX-License-Identifier: Apache-2.0
"""The process that compiles parts of graphs and judges them, for graph.py: a line of JSON in, a
trial out.

python graph_worker.py REPRO IMPORTS ALLOWED, where REPRO is the script of a repro folder as opscope
writes it, IMPORTS a list of libraries to load.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VALUES = "values.safetensors"


class Parts:
    """Compiles parts, the last one until another comes: other values need no compiler."""

    def __init__(self, script: Any) -> None:
        self._script = script
        self._key: bytes | None = None
        self._compiled: Any = None

    def judge(self, folder: Path) -> dict[str, Any]:
        """A trial of the part in a folder."""
        import torch

        from opscope.record.torch.perturbed import Converting
        from opscope.record.torch.windows import judge, leaves, together

        data, stored = self._read(folder)
        trained = [number for number, row in enumerate(data["inputs"]) if row["trained"]]
        plain = self._script.build(data)
        given = [each.detach() for each in self._script.inputs(data, stored)]

        def run(inputs: list[Any]) -> Sequence[Any]:
            made: Sequence[Any] = self._script.results(plain, leaves(inputs, trained))
            return made

        with Converting() as converting:
            run(together(given))
        if converting.undefined:
            return {"status": "cannot", "told": "it converts numbers that a type cannot hold"}
        compiled = self._script.results(self._compile(data), leaves(together(given), trained))
        with torch.random.fork_rng():
            deviating = judge(compiled, run, given)
        if deviating is None:
            return {"status": "done", "told": "compiled code and operators agree"}
        deviation = deviating.deviation
        return {
            "status": "done",
            "shown": 1,
            "tried": 1,
            "told": f"{deviation.got:g} compiled, {deviation.expected:g} operator by operator",
            "grade": deviation.error / deviation.tolerance if deviation.tolerance else float(2**30),
            "seen": {"witness": deviating.witness()},
        }

    def values(self, folder: Path) -> dict[str, Any]:
        """What each call makes, written beside the part; names by shape and type."""
        import torch

        from opscope.repro.scripts.stored import write_tensors

        data, stored = self._read(folder)
        plain = self._script.build(data)
        names = [row["name"] for row in data["nodes"]]
        calls = [node for node in plain.graph.nodes if node.op.startswith("call_")]
        made_by: dict[str, torch.Tensor] = {}

        class Kept(torch.fx.Interpreter):
            def run_node(self, node: torch.fx.Node) -> Any:
                made = super().run_node(node)
                if node in calls and isinstance(made, torch.Tensor) and made.numel():
                    flat = made.detach().contiguous().clone()
                    made_by[names[calls.index(node)]] = flat
                return made

        with torch.no_grad():
            Kept(plain).run(*[each.detach() for each in self._script.inputs(data, stored)])
        held = {name: each for name, each in made_by.items() if not each.is_complex()}
        write_tensors(folder / VALUES, {name: each.reshape(-1) for name, each in held.items()})
        rows = {
            name: {"shape": list(each.shape), "dtype": str(each.dtype).removeprefix("torch.")}
            for name, each in held.items()
        }
        return {"status": "done", "seen": rows}

    def _compile(self, data: dict[str, Any]) -> Any:
        import torch

        key = json.dumps([data["backend"], data["inputs"], data["nodes"], data["outputs"]]).encode()
        if key != self._key:
            torch._dynamo.reset()
            self._compiled = torch.compile(
                self._script.build(data), backend=data["backend"], dynamic=False
            )
            self._key = key
        return self._compiled

    @staticmethod
    def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        from opscope.repro.scripts.stored import read_tensors

        data = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
        return data, read_tensors(folder / "inputs.safetensors")


def main() -> None:
    sys.path.pop(0)  # this folder: what lies in it are no modules of their own
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a compiler prints is no answer

    def answer(reply: dict[str, Any]) -> None:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()

    try:
        script = _loaded(Path(sys.argv[1]))
        for name in json.loads(sys.argv[2]):
            script.load(name)
        import opscope.record.torch.windows  # noqa: F401 - before it is said to be ready
    except Exception as error:  # noqa: BLE001 - of libraries that are loaded
        answer({"status": "cannot", "told": f"{type(error).__name__}: {error}"})
        return
    answer({"status": "ready"})
    parts = Parts(script)
    for line in sys.stdin:
        request = json.loads(line)
        begun = time.monotonic()
        try:
            reply = getattr(parts, request["asked"])(Path(request["folder"]))
        except Exception as error:  # noqa: BLE001 - of whatever is called
            reply = {"status": "cannot", "told": f"{type(error).__name__}: {error}"[:300]}
        answer({**reply, "seconds": time.monotonic() - begun})


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("repro_graph", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
