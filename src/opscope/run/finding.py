# SPDX-License-Identifier: Apache-2.0
"""What a question answers with: one frozen record for a finding and one for the document it stands
in.

The shape is architecture.md section 6. Numbers that are not finite are written as "nan", "inf",
"-inf" in JSON.
"""

from __future__ import annotations

import html
from typing import Any

import msgspec

from opscope.run.printable import printable
from opscope.run.relation import cell, html_table
from opscope.version import VERSION

_TOLD = ("min", "max", "nan", "pos_inf", "neg_inf")  # of a tensor's statistics, in a notebook
_SHOWN = 20  # findings, in a notebook

# Each kind of warning about a training (scan.training), which nobody but its author knows to be a
# fault: what was seen.
WARNINGS: dict[str, str] = {
    "gradients-not-zeroed": "backward adds to gradients that the optimizer has used already, step "
    "after step; optimizer.zero_grad() is missing, or is another optimizer's",
    "repeated-batch": "the model gets the same batch in every step: a loader that is begun again, "
    "a sampler that gives one index",
    "repeated-order": "a shuffle draws the order that it drew before: a generator seeded in every "
    "epoch, a DistributedSampler without set_epoch",
    "randomness-in-eval": "a module in eval mode drops elements at random: a dropout that does not "
    "look at the mode",
    "normalisation-in-eval": "running statistics change while the model is in eval mode: a "
    "normalisation was left in training mode",
    "nothing-trained": "an optimizer steps, and nothing that it holds gets a gradient or changes: "
    "frozen parameters, or a loss that does not depend on them",
    "parameters-without-gradient": "parameters are computed with and held by an optimizer, and "
    "never get a gradient though others do: detach, .data or no_grad in between",
    "parameters-without-optimizer": "parameters get gradients and stay as they are: no optimizer "
    "that steps holds them, as of layers added after it was made",
    "frozen-parameter-changed": "an optimizer moves a parameter that requires no gradient, by the "
    "momentum or the decay of what it was given before",
    "tied-parameters-parted": "parameters that were one when the model was first called are not "
    "any more: one of them was replaced",
    "input-not-read": "no operator reads an input that the model is called with",
    "clipped-apart": "each rank scales its part of a sharded model's gradients by a number of its "
    "own: clipped by the norm of one rank's shards, which is not that of the gradient",
    "replicas-apart": "ranks that begin with the same parameters train each by itself: the model "
    "is called around its wrapper, or its parameters were replaced under it",
}

# Each kind of finding: what it says, and what to type next.
KINDS: dict[str, tuple[str, str]] = {
    "overflow-origin": (
        "an operator made NaN, infinity or an overflow of sound inputs",
        "opscope repro RUN CALL -o case",
    ),
    "divergence-origin": (
        "two runs agree in what this call reads and part in what it gives",
        "opscope replay RUN --ops OP, to see which of the two is right",
    ),
    "structural-difference": (
        "one run makes a call that the other does not, or with other arguments",
        "opscope show RUN CALL, on both sides",
    ),
    "drift": (
        "a training goes away from golden faster than rounding takes another run (--noise-run)",
        "opscope run --check -- COMMAND, on the target's side",
    ),
    "replay-mismatch": (
        "an operator, made again, differs from a trusted substitute beyond rounding",
        "opscope repro RUN CALL -o case",
    ),
    "compiled-mismatch": (
        "what a compiler made of a graph is not what the operators of the graph compute",
        "opscope repro RUN CALL -o case",
    ),
    "nondeterminism": (
        "an operator, made again of the same inputs, gives other bits each time",
        "opscope replay RUN --repeat 10 --ops OP",
    ),
    "crash": (
        "the program died, hung or was stopped in this call, or the call raised",
        "opscope run --journal OP -- COMMAND, which keeps its inputs; then opscope repro",
    ),
    "aicore-error": (
        "a kernel of an Ascend device failed, as the device's logs and registers say",
        "opscope aicore LOGS -o case",
    ),
    "gradient-explosion": (
        "the norm of gradients grew 10,000 times and still grows",
        "opscope show RUN --phases backward --steps STEP",
    ),
    "gradient-vanishing": (
        "the norm of gradients fell a million times while the loss stayed",
        "opscope show RUN --phases backward --steps STEP",
    ),
    "rank-mismatch": (
        "ranks that should hold the same do not, or their collectives differ",
        "opscope show RUN CALL --ranks 0,1",
    ),
    "lost-update": (
        "an optimizer left a parameter as it was, though its update is large enough to show",
        "opscope show RUN CALL",
    ),
    "row-crossing": (
        "an operator that works row by row carried NaN of one row into another",
        "opscope show RUN CALL",
    ),
    "unset-memory": (
        "a call read memory that nothing had written",
        "opscope show RUN CALL",
    ),
}
CONFIDENCES: dict[str, str] = {
    "proven": "the rows of the run exclude every other explanation that is known",
    "likely": "the rows speak for it, and something that was not recorded could explain it "
    "otherwise",
    "suspected": "worth a look; nothing is excluded",
}


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """The forward call whose gradient a backward call computes."""

    call: str
    op: str
    source: str | None = None


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a finding's call; stats holds the non-null statistics columns of its row."""

    slot: str
    dtype: str
    shape: tuple[int, ...] | None = None
    stats: dict[str, Any] = {}
    tensor_name: str | None = None
    role: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong: which call, where, why, how sure, and the evidence: dicts, of an AI
    Core error records (ascend.evidence).
    """

    kind: str
    rank: int = 0
    step: int = 0
    index: int | None = None
    call: str | None = None
    op: str | None = None
    phase: str | None = None
    module: str | None = None
    source: str | None = None
    forward: Forward | None = None
    status: str | None = None
    reasons: tuple[str, ...] = ()
    confidence: str = "proven"
    evidence: tuple[Any, ...] = ()
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()

    def line(self) -> str:
        """Kind, place and reason in one line, as the run has them: not yet fit for a terminal."""
        named = (self.op, self.phase, self.module, self.source)
        where = [f"step {self.step}", f"rank {self.rank}", *(text for text in named if text)]
        reasons = f"; {', '.join(self.reasons)}" if self.reasons else ""
        return f"{self.kind} ({self.confidence}): {', '.join(where)}{reasons}"

    def _repr_html_(self) -> str:
        rows = [
            [
                cell(each)
                for each in (word, slot.slot, slot.dtype, slot.shape, *map(slot.stats.get, _TOLD))
            ]
            for word, side in (("in", self.inputs), ("out", self.outputs))
            for slot in side
        ]
        heads = ("", "tensor", "type", "shape", *_TOLD)
        table = html_table("", heads, rows) if rows else ""
        return f"<p>{html.escape(printable(self.line()))}</p>{table}"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The one JSON document a verb prints."""

    opscope: str = VERSION
    verb: str
    runs: tuple[str, ...] = ()
    verdict: str = "clean"
    complete: bool = True
    findings: tuple[Finding, ...] = ()
    summary: dict[str, Any] = {}

    def __repr__(self) -> str:
        state = self.verdict if self.complete else f"{self.verdict}, incomplete"
        lines = [f"<Document {self.verb} {' '.join(self.runs)}: {state}>"]
        lines += [f"{number}. {each.line()}" for number, each in enumerate(self.findings, start=1)]
        lines += [f"warning: {line}" for line in self.summary.get("warnings", ())]
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{each._repr_html_()}</li>" for each in self.findings[:_SHOWN])
        more = len(self.findings) - _SHOWN
        rest = f"<p>and {more} more</p>" if more > 0 else ""
        warned = "".join(
            f"<p>warning: {html.escape(printable(line))}</p>"
            for line in self.summary.get("warnings", ())
        )
        head = html.escape(repr(self).partition("\n")[0])
        return f"<p><b>{head}</b></p>{warned}<ol>{rows}</ol>{rest}"
