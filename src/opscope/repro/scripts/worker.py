# SPDX-License-Identifier: Apache-2.0
"""Makes many candidates of one repro: imports torch and the case's libraries once, then forks a
child for each candidate.

    python worker.py REPRO.PY LIBRARIES-AS-JSON ALLOWED-OPERATORS-AS-JSON [--clean]

reads one JSON request a line from stdin and answers one line each. A child dies or stands still
without harm to its parent,
and starts as fresh as a new process: no candidate sees what another left behind. The parent
computes nothing, on one thread, since a pool of threads does not survive a fork. --clean loads no
library and only works out what others are judged by.

request  {"folder": path, "code": source of `call`, "limit": seconds, "repeat": n, "fork": bool,
          "threads": n, 0 for as many as torch wants, "results": path or null}
answer  {"status": "done | cannot | died | hang", "shown": n, "tried": n, "told": text, "pattern":
        {...}, "grade": x,
          "seen": {slot: statistics}, "code": exit status of a child that died, "undefined": with
          --clean, slots of outputs that show what fresh memory held, "seconds": what it took}
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any


class Server:
    """One loaded script and the operator it calls."""

    def __init__(self, path: str, imports: list[str], allowed: list[str], *, clean: bool) -> None:
        spec = importlib.util.spec_from_file_location("opscope_case", path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        self.script: Any = importlib.util.module_from_spec(spec)
        sys.modules["opscope_case"] = self.script
        spec.loader.exec_module(self.script)
        self.clean = clean
        self.threads = self.script.torch.get_num_threads()
        self.script.torch.set_num_threads(1)
        self.operator = self.script.find_operator(imports, allowed)
        if not clean and not imports:
            with contextlib.suppress(ImportError):
                importlib.import_module(
                    "torch._decomp"
                )  # a second, better spent here than in every child

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        start = time.monotonic()
        made = (
            forked(lambda: self.make(request), request["limit"])
            if request["fork"]
            else self.make(request)
        )
        return {**made, "seconds": time.monotonic() - start}

    def make(self, request: dict[str, Any]) -> dict[str, Any]:
        script = self.script
        script.torch.set_num_threads(request["threads"] or self.threads)
        script.HERE = Path(request["folder"])
        exec(request["code"], vars(script))  # noqa: S102 - the call, as opscope writes it into repro.py
        try:
            case = json.loads((script.HERE / "case.json").read_text(encoding="utf-8"))
            kept = script.load_tensors("inputs.safetensors")
            if self.clean:
                where = script.Conditions(case["device"], "cpu", {})
                results = script.clean_results(case, kept, where, self.operator)
                script.save_results(request["results"], results)
                return {
                    "status": "done",
                    "undefined": self.undefined(case, kept, where, results.plain),
                }
            return self.judged(case, kept, request)
        except (script.CannotTry, *script.UNSUPPORTED) as error:
            return {"status": "cannot", "told": script.first_line(error)}

    def undefined(
        self, case: dict[str, Any], kept: dict[str, Any], where: Any, plain: dict[str, Any]
    ) -> list[str]:
        """Outputs that show what fresh memory held: some kernels leave them so, others where shapes
        do not fit each other.
        """
        torch = self.script.torch
        with contextlib.suppress(AttributeError):  # of old versions of torch
            torch._C._set_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - fills it with NaN and large integers
        again = self.script.make_call(case, kept, where)
        return [
            slot
            for slot, value in plain.items()
            if slot in again and not same_classes(torch, value, again[slot])
        ]

    def judged(
        self, case: dict[str, Any], kept: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        script = self.script
        device = script.usable_device(case["run_on"] or case["device"], [])
        where = script.Conditions(
            case["device"], device, script.widening(case["run_as"]) if case["run_as"] else {}
        )
        judge = script.Judge(self.operator, [], case["run_as"], [])
        if request["results"]:
            judge.known[0] = script.load_results(request["results"])
        if case["flags"].get("deterministic"):
            script.torch.use_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - torch's signature
        trials = []
        for where.seed in range(request["repeat"]):
            trials.append(script.attempt(case, kept, where, judge))
        best = max(trials, key=lambda trial: (trial.finding.shown, trial.finding.grade))
        if case["failure"]["kind"] == "nonfinite":
            self.relate(case, kept, where, judge, best)
        return {
            "status": "done",
            "shown": sum(trial.finding.shown for trial in trials),
            "tried": len(trials),
            "told": best.finding.told,
            "pattern": best.finding.pattern,
            "grade": min(best.finding.grade, 1e30),
            "seen": best.seen,
        }

    def relate(
        self, case: dict[str, Any], kept: dict[str, Any], where: Any, judge: Any, trial: Any
    ) -> None:
        """What exact arithmetic gives in the same place belongs to the pattern: 0 / 0 is not the
        kernel's fault.
        """
        for slot, seen in trial.finding.pattern.items():
            try:
                exact = judge.reference(case, kept, where).exact.get(slot)
                seen["exact"] = self.script.relation(exact, trial.outputs[slot])
            except (self.script.CannotTry, *self.script.UNSUPPORTED):  # noqa: PERF203
                seen["exact"] = "unknown"


def same_classes(torch: Any, one: Any, other: Any) -> bool:
    """Whether NaN stands in the same places of two results, and whole numbers are the same."""
    if one.is_floating_point() or one.is_complex():
        return bool(torch.equal(torch.isnan(one), torch.isnan(other)))
    return bool(torch.equal(one, other))


def forked(work: Any, limit: float) -> dict[str, Any]:
    """What work gives, made in a forked child that is killed after limit seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        with contextlib.suppress(BaseException):
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
            code = 0
        os._exit(code)
    os.close(writing)
    text, late = b"", False
    deadline = time.monotonic() + limit
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            late = True
            os.kill(child, 9)
            break
        part = os.read(reading, 1 << 16)
        if not part:
            break
        text += part
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if late:
        return {"status": "hang"}
    code = os.waitstatus_to_exitcode(status)
    answer: dict[str, Any] = (
        json.loads(text) if code == 0 and text else {"status": "died", "code": code}
    )
    return answer


def main(arguments: list[str]) -> int:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # operators may print
    os.dup2(silence, 2)
    try:
        server = Server(
            arguments[0],
            json.loads(arguments[1]),
            json.loads(arguments[2]),
            clean="--clean" in arguments,
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - said to the parent, who decides
        print(
            json.dumps({"status": "cannot", "told": str(error) or type(error).__name__}),
            file=channel,
            flush=True,
        )
        return 125
    print(json.dumps({"status": "ready"}), file=channel, flush=True)
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - a candidate that cannot even be built is an answer
            answer = {"status": "cannot", "told": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=channel, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
