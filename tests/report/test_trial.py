# SPDX-License-Identifier: Apache-2.0
"""The report of a trial fits the terminal, and says what it leaves out."""

from __future__ import annotations

from opscope.report.trial import LISTED, next_lines, trial_lines, verdict_lines


def test_lines_fit_the_terminal_and_go_on_under_their_words() -> None:
    wide = (
        "  wide  0        f64[1000, 1000] x∈[0.211, 1.79] in float64 on the CPU, kernels of a "
        "clean process; wider arithmetic avoids it"
    )
    told = [
        line.plain for line in trial_lines(["aten::bmm.default  on cpu, torch 2", wide], width=60)
    ]
    assert told[0] == "aten::bmm.default  on cpu, torch 2"
    assert max(map(len, told)) <= 60
    assert told[2].startswith(" " * 17)
    assert " ".join(" ".join(told[1:]).split()) == " ".join(wide.split())


def test_of_many_tensors_the_first_are_listed() -> None:
    lines = [
        f"  {kind}   0.{number}      f32[4]" for kind in ("in ", "out") for number in range(40)
    ]
    told = [line.plain for line in trial_lines([*lines, "  note  words"], width=80)]
    assert len(told) == 2 * (LISTED + 1) + 1
    assert "and 32 more" in told[LISTED]
    few = lines[: LISTED + 1]
    assert [line.plain for line in trial_lines(few, width=80)] == few


def test_the_verdict_begins_with_its_word() -> None:
    told = [
        line.plain
        for line in verdict_lines("reproduced 3/3", "words " * 30, style="bold red", width=60)
    ]
    assert told[0].startswith("reproduced 3/3: words")
    assert max(map(len, told)) <= 60
    assert [line.plain for line in next_lines("python x.py", width=60)] == ["next  python x.py"]
    long = "python " + "x" * 50 + " y.py"
    assert [line.plain for line in next_lines(long, "or --repeat 10", width=60)] == [
        f"next  {long}",
        "      (or --repeat 10)",
    ]
