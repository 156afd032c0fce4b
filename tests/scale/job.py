# SPDX-License-Identifier: Apache-2.0
"""Runs of any size as the product's writer leaves them: ranks that train one model together, no two
rows alike, with a fault in one place, with faults of several kinds together, or with none.

    python -m tests.scale.job OUT --ranks 1000 --steps 30 --layers 8 --fault nan_forward --seed 1

prints what was planted as JSON. A rank has steps x layers x 13 + steps x 5 rows of tensors, about.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from opscope.run.arrow import encode_columns
from opscope.run.finding import Document, Finding
from opscope.run.schema import TABLES, Process
from opscope.run.store.layout import create_run, seal_run
from opscope.run.store.writer import ProcessWriter

FAULTS = (
    "nan_forward",  # one call makes NaN of sound inputs
    "inf_forward",
    "nan_backward",
    "nan_optimizer",
    "nan_data",  # what the program was given
    "half_overflow",  # a result beyond float16, its status bit recorded
    "nan_reduced",  # a collective returns what nobody sent
    "weights_part",  # one rank's update leaves another weight
    "gradients_part",  # one rank clips by another number
    "no_exchange",  # one rank leaves a collective out
    "other_epsilon",  # one rank runs a layer norm with another eps
    "other_result",  # one rank's kernel gives something else of the same bits
)
PLACES = {  # lines of the program at which each is to be named
    "nan_forward": "12",
    "inf_forward": "12",
    "half_overflow": "12",
    "nan_backward": "12",
    "nan_optimizer": "18",
    "nan_data": "12",
    "nan_reduced": "16",
    "weights_part": "18",
    "gradients_part": "17",
    "no_exchange": "16 18",
    "other_epsilon": "13",
    "other_result": "11",
}
MADE = (("nan_forward", "nan"), ("inf_forward", "inf"), ("half_overflow", "inf"))
PARTING = ("weights_part", "gradients_part", "no_exchange")
# Where one rank has it every rank gets a gradient that is not finite.
SPREADING = ("nan_data", *(name for name, _ in MADE), "nan_backward", "nan_reduced")


class Fault(msgspec.Struct, frozen=True):
    """What is wrong where."""

    name: str
    rank: int
    step: int
    layer: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and what is wrong.

    skips: whether all ranks leave the updates of a step out in which one of them has a gradient
    that is not finite, as a scaler of losses does; without, such a fault spoils all that follows.
    """

    ranks: int
    steps: int = 10
    layers: int = 4
    faults: tuple[Fault, ...] = ()
    skips: bool = False
    seed: int = 0

    def at(self, step: int) -> Iterator[Fault]:
        """The faults of a step."""
        return (fault for fault in self.faults if fault.step == step)


def _placed(name: str, rank: int, step: int, layer: int) -> Fault:
    """A fault there; another program runs from the first step on."""
    return Fault(name, rank, 0 if name == "other_epsilon" else step, layer)


def planned(name: str | None, *, ranks: int, steps: int, layers: int, seed: int) -> Plan:
    """A plan with its fault at a random place; never in the first step, which has no before."""
    at = random.Random(f"{seed} {name}")
    place = at.randrange(ranks), at.randrange(1, steps - 1), at.randrange(layers)
    faults = () if name is None else (_placed(name, *place),)
    return Plan(ranks=ranks, steps=steps, layers=layers, faults=faults, seed=seed)


def planned_together(*, ranks: int, steps: int, layers: int, seed: int) -> Plan:
    """A plan with a fault of every kind that leaves others to be seen, each on a rank and in a step
    of its own.

    Weights that part stay apart, and where they part first is told: no such fault. A weight that is
    NaN spoils what follows in any case: it comes last. After updates that are left out a rank
    computes of the same bits again, and one that gets something else by itself accuses nobody.
    """
    at = random.Random(seed)
    first, last = "other_result", "nan_optimizer"
    order = [name for name in FAULTS if name not in {first, last, *PARTING}]
    at.shuffle(order)
    order = [first, *order, last]
    places = zip(
        order,
        at.sample(range(ranks), len(order)),
        sorted(at.sample(range(1, steps - 1), len(order))),
        strict=True,
    )
    faults = tuple(_placed(*place, at.randrange(layers)) for place in places)
    return Plan(ranks=ranks, steps=steps, layers=layers, faults=faults, skips=True, seed=seed)


@cache
def _arguments(count: int) -> str:
    """The arguments of a call of tensors only."""
    return json.dumps({"args": [{"tensor": str(place)} for place in range(count)], "kwargs": {}})


class _Rank:
    """The rows of one rank, column by column."""

    def __init__(self, plan: Plan, rank: int, process: int) -> None:
        self.plan, self.rank, self.process = plan, rank, process
        self._random = random.Random(f"{plan.seed} {rank}")
        self._version = self.index = self.step = 0
        self._words = json.dumps(
            {
                "args": [
                    [{"tensor": "0.0"}],
                    {"object": {"process_group": "0", "ranks": f"0-{plan.ranks - 1}"}},
                ],
                "kwargs": {},
            }
        )
        self.clear()

    def clear(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []

    def shared(self, what: str, *place: int) -> int:
        """A digest that every rank has."""
        return xxhash.xxh3_64_intdigest(repr((self.plan.seed, what, *place)).encode())

    def own(self) -> int:
        """A digest that nobody else has."""
        return self._random.getrandbits(64)

    def tensor(self, digest: int, *, bad: str | None = None, **columns: Any) -> dict[str, Any]:
        """A state of 64 elements; bad: "nan" or "inf" in them."""
        self._version += 1
        spread = digest % 65_521 / 65_521 + 0.5
        return {
            "version": self._version,
            "storage": self._version,
            "offset": 0,
            "dtype": "float32",
            "shape": (8, 8),
            "stride": (8, 1),
            "device": "cpu",
            "size": 64,
            "nan": 3 if bad == "nan" else 0,
            "pos_inf": 2 if bad == "inf" else 0,
            "neg_inf": 0,
            "zero": 0,
            "neg": 30,
            "pos": 31 if bad else 34,
            "near_limit": 0,
            "min": -spread,
            "max": spread,
            "mean": spread / 64,
            "l2norm": 4 * spread,
            "digest": digest,
            **columns,
        }

    def call(
        self,
        op: str,
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
        *,
        line: int,
        phase: str = "forward",
        layer: int | None = None,
        **columns: Any,
    ) -> int:
        where = {"process": self.process, "index": self.index}
        self.calls.append(
            {
                **where,
                "rank": self.rank,
                "step": self.step,
                "level": "operator",
                "phase": phase,
                "op": op,
                "thread": 1,
                "module": None if layer is None else f"layers.{layer}",
                "name": f"{op.rpartition('::')[2]}#{self.index}",
                "source": f"/job/train.py:{line}",
                "args": _arguments(len(inputs)),
                **columns,
            }
        )
        for io, tensors in (("input", inputs), ("output", outputs)):
            for place, tensor in enumerate(tensors):
                self.tensors.append({**where, "io": io, "slot": str(place), **tensor})
        self.index += 1
        return self.index - 1

    # -- a training ------------------------------------------------------------------------------

    def trained(self) -> Iterator[int]:
        """Makes the rows of each step."""
        weights = [
            self.tensor(
                self.shared("w", layer, 0), role="parameter", tensor_name=f"layers.{layer}.w"
            )
            for layer in range(self.plan.layers)
        ]
        for self.step in range(self.plan.steps):
            x, bad = self._forward(weights)
            self._backward(weights, x, bad)
            yield self.step

    def _fault(self, name: str, layer: int | None = None) -> bool:
        """Whether this fault is to be planted here."""
        return any(
            (fault.name, fault.rank) == (name, self.rank) and layer in (None, fault.layer)
            for fault in self.plan.at(self.step)
        )

    def _parted(self, layer: int, *names: str) -> bool:
        """Whether one of these faults, planted here or in a step before, still shows."""
        return any(
            (fault.rank, fault.layer) == (self.rank, layer)
            and fault.name in names
            and fault.step <= self.step
            for fault in self.plan.faults
        )

    def _forward(self, weights: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
        """The last activation, and what is wrong with it."""
        bad = "nan" if self._fault("nan_data") else None
        x = self.tensor(self.own(), bad=bad, role="input")
        for layer, weight in enumerate(weights):
            bad = "nan" if bad or weight["nan"] else None
            made = next((kind for name, kind in MADE if self._fault(name, layer)), bad)
            columns = {"parent": self.index, "layer": layer}
            half = self._fault("half_overflow", layer)
            output = self.tensor(self.own(), bad=made, dtype="float16" if half else "float32")
            module = {"level": "module", "name": f"layers.{layer}#{self.step}"}
            self.call("Layer", [x], [output], line=9, layer=layer, **module)
            self.call(
                "aten::mul.Tensor",
                [weight, weight],
                [self._scale(layer, weight)],
                line=11,
                **columns,
            )
            last = {**x, "slot": "0"}, {**weight, "slot": "1"}
            self.call("aten::mm.default", [*last], [output], line=12, **columns)
            eps = 1e-3 if self._parted(layer, "other_epsilon") else 1e-5
            x, bad = self.tensor(self.own(), bad="nan" if made else None), made
            self.call(
                "aten::native_layer_norm.default",
                [output],
                [x],
                line=13,
                args=json.dumps({"args": [{"tensor": "0"}, [8], None, None, eps], "kwargs": {}}),
                **columns,
            )
        return x, "nan" if bad else None

    def _scale(self, layer: int, weight: dict[str, Any]) -> dict[str, Any]:
        """What every rank computes of the same bits."""
        odd = self._fault("other_result", layer)
        digest = self.own() if odd else self.shared("scale", layer, weight["digest"])
        return self.tensor(digest, bad="nan" if weight["nan"] else None, l2norm=9.0 if odd else 2.0)

    def _backward(self, weights: list[dict[str, Any]], x: dict[str, Any], bad: str | None) -> None:
        loss = self.tensor(self.own(), bad=bad, size=1, shape=(), stride=())
        self.call("aten::mean.default", [x], [loss], line=14)
        seed = self.tensor(self.shared("ones"), min=1.0, max=1.0, size=1, shape=(), stride=())
        self.call("aten::ones_like.default", [loss], [seed], line=15, phase="backward")
        gradient = seed
        for layer in reversed(range(len(weights))):
            named = {"role": "gradient", "tensor_name": f"layers.{layer}.w"}
            bad = (
                "nan"
                if bad or weights[layer]["nan"] or self._fault("nan_backward", layer)
                else None
            )
            local = self.tensor(self.own(), bad=bad, **named)
            handed = self.tensor(self.own(), bad=bad)
            made = [local, handed]
            self.call(
                "aten::mm.default", [gradient, x], made, line=12, phase="backward", layer=layer
            )
            weights[layer] = self._updated(
                layer, weights[layer], self._reduced(layer, local, weights)
            )
            gradient = handed

    def _reduced(
        self, layer: int, local: dict[str, Any], weights: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """The gradient that all ranks get, but one that leaves the exchange out."""
        if self._fault("no_exchange", layer):
            return local
        named = {"role": "gradient", "tensor_name": f"layers.{layer}.w"}
        bad = (
            local["nan"]
            or any(self._arrives(fault, layer) for fault in self.plan.at(self.step))
            or any(weight["nan"] for weight in weights)
        )
        digest = (
            self.own() if self._fault("nan_reduced", layer) else self.shared("g", layer, self.step)
        )
        reduced = self.tensor(digest, bad="nan" if bad else None, **named)
        self.call(
            "c10d::allreduce_",
            [{**local, "slot": "0.0"}],
            [{**reduced, "slot": "0.0"}],
            line=16,
            phase="communication",
            args=self._words,
        )
        if not self._fault("gradients_part", layer):
            return reduced
        clipped = self.tensor(self.own(), **named)
        args = '{"args": [{"tensor": "0"}, 0.5], "kwargs": {}}'
        self.call("aten::mul_.Tensor", [reduced], [clipped], line=17, phase="optimizer", args=args)
        return clipped

    def _arrives(self, fault: Fault, layer: int) -> bool:
        """Whether this rank gets a gradient of this layer that the fault of some rank spoilt."""
        if fault.name == "nan_reduced":
            return (fault.rank, fault.layer) == (self.rank, layer)
        return fault.name in SPREADING and (fault.name != "nan_backward" or layer <= fault.layer)

    def _left_out(self) -> bool:
        """Whether nobody updates a weight in this step."""
        return self.plan.skips and any(fault.name in SPREADING for fault in self.plan.at(self.step))

    def _updated(
        self, layer: int, weight: dict[str, Any], gradient: dict[str, Any]
    ) -> dict[str, Any]:
        """The weight after its update; of one that parted once every state is the rank's own."""
        if self._left_out():
            return weight
        odd = self._fault("weights_part", layer)
        parted = self._parted(layer, *PARTING)
        digest = self.own() if parted else self.shared("w", layer, self.step + 1)
        bad = weight["nan"] or gradient["nan"] or self._fault("nan_optimizer", layer)
        found = self.tensor(
            digest,
            bad="nan" if bad else None,
            role="parameter",
            tensor_name=f"layers.{layer}.w",
        )
        rate = 0.2 if odd else 0.1
        self.call(
            "aten::add_.Tensor",
            [weight, gradient],
            [found],
            line=18,
            phase="optimizer",
            args=json.dumps(
                {"args": [{"tensor": "0"}, {"tensor": "1"}], "kwargs": {"alpha": rate}}
            ),
        )
        return found


def rank_writer(run: Path, rank: int, world: int) -> ProcessWriter:
    """The product's writer for one rank of a job."""
    facts = Process(
        process=-1,
        directory="",
        host="node",
        pid=1000 + rank,
        rank=rank,
        world=world,
        start=1.0,
    )
    return ProcessWriter(run, facts, keep=None)


def write_rank(run: Path, plan: Plan, rank: int) -> int:
    """One rank by the product's writer; how many rows of tensors it has."""
    writer = rank_writer(run, rank, plan.ranks)
    rows, one = 0, _Rank(plan, rank, writer.process.process)
    for step in one.trained():
        if one.index and (step == plan.steps - 1 or len(one.tensors) > 4096):
            rows += len(one.tensors)
            for table, found in (("calls", one.calls), ("tensors", one.tensors)):
                columns = [[row.get(name) for row in found] for name in TABLES[table]]
                writer.append(table, encode_columns(TABLES[table], columns), step=step)
            one.clear()
        writer.end_step(step, finding=False)
    writer.update(steps=plan.steps)
    writer.close(exit_code=0)
    return rows


def write_job(out: Path, plan: Plan) -> tuple[Path, int]:
    """The run of every rank, sealed, and its rows of tensors."""
    run = create_run(out, command=["torchrun", "train.py"])
    rows = sum(write_rank(run, plan, rank) for rank in range(plan.ranks))
    seal_run(run)
    return run, rows


def tells(found: Finding, fault: Fault) -> bool:
    """Whether a finding is this fault: rank, step and line."""
    lines = [f"/job/train.py:{line}" for line in PLACES[fault.name].split()]
    odd = found.evidence[0].get("odd_ranks", [found.rank])
    return (list(odd), found.step) == ([fault.rank], fault.step) and found.source in lines


def named(document: Document, plan: Plan) -> bool:
    """Whether every planted fault is a finding, and the first finding one of them; of a healthy job
    whether nothing is.
    """
    findings = document.findings
    if not plan.faults:
        return document.verdict == "clean"
    return all(any(tells(found, fault) for found in findings) for fault in plan.faults) and any(
        tells(findings[0], fault) for fault in plan.faults
    )


def told_alone(document: Document, plan: Plan) -> bool:
    """Whether what was planted is told, and nothing else."""
    findings = document.findings
    return named(document, plan) and all(
        any(tells(found, fault) for fault in plan.faults) for found in findings
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for name, usual in (("ranks", 8), ("steps", 10), ("layers", 4), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--fault", choices=(*FAULTS, "together"))
    given = parser.parse_args()
    size = {name: getattr(given, name) for name in ("ranks", "steps", "layers", "seed")}
    plan = planned_together(**size) if given.fault == "together" else planned(given.fault, **size)
    run, rows = write_job(given.out, plan)
    print(json.dumps({"run": str(run), "rows": rows, **msgspec.to_builtins(plan)}))


if __name__ == "__main__":
    main()
