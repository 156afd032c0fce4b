# SPDX-License-Identifier: Apache-2.0
"""Which graphs of torch.compile, and which operators of them, make a command's failure go away when
they run without the compiler.

All graphs first, which tells whether the compiler is guilty at all; then ddmin over graphs; then,
the others compiled as they are, ddmin over kinds of operators in the guilty ones and over the
operators of those; then how far the compiler has to be left out, which tells its guilty stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.bisect.oracle import BAD, GOOD, Observation, Oracle, Scan, oracle_for
from opscope.bisect.search import (
    RECORDING,
    Answers,
    Bisected,
    TooManyTrialsError,
    conclude,
    control,
    evidence,
    first_run,
    last_words,
)
from opscope.bisect.trials import Tell, Trials
from opscope.errors import UsageError
from opscope.operators.spelling import COMPILED
from opscope.repro.ddmin import ddmin
from opscope.run.finding import Finding
from opscope.run.printable import spans

if TYPE_CHECKING:
    from opscope.run.finding import Document
    from opscope.run.protocol import Run

EVERY = "every graph eager"
UNCOMPILED = "nothing compiled"
OFF = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}  # newer and older torch
# Backends that leave out the end of the compiler, the latest first, and what is guilty where one is
# good and those before it are bad.
STAGES = {
    "aot_eager_decomp_partition": "what the backend makes of the decomposed graph",
    "aot_eager": "the decompositions, or where forward and backward are parted",
    "eager": "AOTAutograd",
}
CAPTURE = "Dynamo, which captures the graphs: the failure stays when each of them runs eagerly"


def bisect_graphs(
    trials: Trials,
    oracle: Oracle | None,
    *,
    most: int,
    scan: Scan,
    open_run: Callable[[Path], Run],
    tell: Tell,
) -> tuple[Bisected, tuple[Finding, ...]]:
    """Find the guilty graphs of a command and their guilty operators, one finding a graph.

    Raises UsageError when the command compiles nothing or does not fail, UnavailableError when its
    failure comes and goes or cannot be told.
    """
    tell(f"runs the command as it is, to see how it fails; everything is kept in {trials.folder}")
    first = first_run(trials)
    document = scan(first.run) if first.run.exists() else None
    oracle = oracle or oracle_for(first, scan)
    if oracle is None:
        return _unobserved(document, trials)

    def apply(elements: Sequence[str], name: str) -> Observation:
        if UNCOMPILED in elements:
            return trials.observe(RECORDING, OFF, name)
        rules = ("--backend", backend_rules(elements)) if elements else ()
        return trials.observe((*RECORDING, *rules), {}, name)

    answers = Answers(trials, oracle, apply, most=most, tell=tell)
    findings = () if document is None else document.findings
    control(answers, first, flaky=any(each.kind == "nondeterminism" for each in findings))
    search = Search(trials, answers, open_run)
    whole = answers.ask((EVERY,))
    graphs = {**search.graphs(()), **search.graphs((EVERY,))}
    if not graphs:
        raise UsageError(
            f"the command compiled nothing with torch.compile before it ended{last_words(first)}; "
            f"see {first.folder}"
        )
    if whole == BAD:
        return _beyond(search, graphs), ()
    return search.narrow(graphs, [each.op for each in findings if each.op is not None])


class Search:
    """The graphs of one command, and what trials over them showed."""

    def __init__(self, trials: Trials, answers: Answers, open_run: Callable[[Path], Run]) -> None:
        self.trials, self.answers, self._open_run = trials, answers, open_run

    def graphs(self, elements: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """What the last trial of these elements compiled, by the names of the graphs, in order."""
        made = self.trials.known(elements)
        run = self.trials.folder / made[-1].folder / "run" if made else None
        if run is None or not run.exists():
            return {}
        return {
            name: known
            for process in self._open_run(run).processes
            for name, known in process.torch.get("graphs", {}).items()
        }

    def good(self, elements: Sequence[str]) -> bool:
        return self.answers.ask(elements) == GOOD

    def narrow(
        self, graphs: Mapping[str, Mapping[str, Any]], accused: Sequence[str]
    ) -> tuple[Bisected, tuple[Finding, ...]]:
        """The guilty graphs, their guilty operators and the guilty stage."""
        ranked = sorted(graphs, key=lambda graph: f"{COMPILED}{graph}" not in accused)
        guilty = ddmin(ranked, self.good, patience=len(ranked))
        if len(guilty) == len(graphs) > 1 and not self.good(guilty):
            guilty = [EVERY]  # a graph that is compiled only when others fail
        nodes = self._nodes([graph for graph in guilty if graph in graphs], graphs)
        chosen = nodes or guilty
        stage = self._stage(guilty)
        shown = self.graphs(chosen)
        bisected = msgspec.structs.replace(
            conclude(self.trials, self.answers, chosen, _candidates(graphs)),
            change="run without the compiler",
            stage=stage,
            guilty=tuple(_words(graph, nodes, shown) for graph in guilty),
        )
        return bisected, tuple(
            self._finding(bisected, graph, shown.get(graph, {}))
            for graph in guilty
            if graph in graphs
        )

    def _nodes(
        self, guilty: Sequence[str], graphs: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, ...]:
        """The guilty operators of guilty graphs, empty where only whole graphs make it good: which
        kinds of operators first, since a compiler has one rule for all of a kind.
        """
        kinds: dict[str, list[str]] = defaultdict(list)
        for graph in guilty:
            names = graphs[graph].get("calls", ())
            for number in range(int(graphs[graph].get("operators", 0))):
                kinds[names[number] if number < len(names) else ""].append(f"{graph}/{number}")
        every = [node for nodes in kinds.values() for node in nodes]
        best: list[str] = []

        def good(chosen: list[str]) -> bool:
            is_good = self.good(chosen)
            best[:] = chosen if is_good else best
            return is_good

        def of(chosen: list[str]) -> list[str]:
            return [node for kind in chosen for node in kinds[kind]]

        try:
            wanted = ddmin(list(kinds), lambda chosen: good(of(chosen)), patience=len(kinds))
            smallest_set = ddmin(of(wanted), good)
        except TooManyTrialsError as error:
            self.answers.tell(f"the operators are not searched to the end: {error}")
            return tuple(best)
        return tuple(smallest_set) if len(smallest_set) < len(every) else ()

    def _stage(self, guilty: Sequence[str]) -> str | None:
        """Which stage of the compiler is guilty; None where that could not be told."""
        for backend in list(STAGES)[:-1]:
            elements = [f"{graph}={backend}" for graph in guilty]
            try:
                verdict = self.answers.ask(elements)
            except TooManyTrialsError:
                return None
            taken = self.graphs(elements)
            if verdict == GOOD:
                return STAGES[backend]
            if verdict != BAD or any(
                taken.get(graph, {}).get("backend") != backend for graph in guilty
            ):
                return None
        return STAGES["eager"]

    def _finding(self, bisected: Bisected, graph: str, known: Mapping[str, Any]) -> Finding:
        apart = [each for each in known.get("apart", ()) if isinstance(each, dict)]
        source = next((each["source"] for each in apart if "source" in each), None)
        what = ", ".join(str(each.get("node")) for each in apart) or "it"
        frame, _, _ = str(known.get("frame", "")).partition(" in ")
        reason = (
            f"the failure ({bisected.question}) goes away when {what} of {graph}, "
            f"{known.get('operators')} operators, is run without the compiler"
        )
        return Finding(
            kind="compiled-mismatch",
            op=f"{COMPILED}{graph}",
            source=source or frame or None,
            module=next((each["module"] for each in apart if "module" in each), None),
            confidence="proven",
            reasons=(reason, *([f"guilty: {bisected.stage}"] if bisected.stage else [])),
            evidence=({"nodes": apart}, {"trials": evidence(self.trials.records)}),
        )


def backend_rules(elements: Iterable[str]) -> str:
    """Elements of the search as rules of `opscope run --backend`: EVERY, `graph_0_0`,
    `graph_0_0=aot_eager`, `graph_0_0/3` for one operator.
    """
    rules: list[str] = []
    places: dict[str, list[int]] = defaultdict(list)
    for element in elements:
        graph, parted, rest = element.partition("/")
        if parted:
            places[graph].append(int(rest))
        else:
            named = element.replace(EVERY, "*")
            rules.append(named if "=" in named else f"{named}=eager")
    rules += [f"{graph}/{','.join(spans(numbers))}=eager" for graph, numbers in places.items()]
    return ";".join(rules)


def _beyond(search: Search, graphs: Mapping[str, Mapping[str, Any]]) -> Bisected:
    """A failure that stays when every graph runs eagerly: of the program itself, or of Dynamo."""
    captured = search.good((UNCOMPILED,))
    guilty = (UNCOMPILED,) if captured else ()
    bisected = conclude(search.trials, search.answers, guilty, _candidates(graphs))
    if captured:
        return msgspec.structs.replace(
            bisected, guilty=(CAPTURE,), change="left out (TORCH_COMPILE_DISABLE=1)"
        )
    return msgspec.structs.replace(
        bisected,
        why="the failure stays when nothing is compiled: it is not the compiler's; opscope scan, "
        "or opscope bisect without --compile, looks for the operator",
    )


def _unobserved(document: Document | None, trials: Trials) -> tuple[Bisected, tuple[Finding, ...]]:
    """A command that fails in no way that can be seen: the checks of the first run may accuse."""
    accused = tuple(
        finding
        for finding in (() if document is None else document.findings)
        if finding.kind == "compiled-mismatch"
    )
    why = (
        "the command ends well and shows no failure; say what good is with --metric 'loss<2.5' or "
        "--oracle CMD"
    )
    bisected = Bisected(
        guilty=tuple(dict.fromkeys(str(finding.op) for finding in accused)),
        question="",
        why=why,
        trials=trials.made,
        candidates=0,
        proven=False,
    )
    return bisected, accused


def _candidates(graphs: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(int(known.get("operators", 0)) for known in graphs.values())


def _words(graph: str, nodes: Sequence[str], shown: Mapping[str, Mapping[str, Any]]) -> str:
    """A guilty graph with its guilty operators."""
    named = [str(each.get("node")) for each in shown.get(graph, {}).get("apart", ())]
    if named:
        return f"{', '.join(named)} of {graph}"
    return f"all of {graph}" if nodes else graph
