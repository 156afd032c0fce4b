# SPDX-License-Identifier: Apache-2.0
"""Findings in the formats of continuous integration, parsed again by who reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from opscope.errors import UsageError
from opscope.report.exports import annotation_lines, check_ending, export, place_of
from opscope.run.finding import KINDS, Document, Finding

HERE = Path("/home/someone/project")
HOSTILE = "a]]>&<b\x1b[2J\n::error::x%0A,:"


def document(*findings: Finding, complete: bool = True) -> Document:
    return Document(
        opscope="0.1.0",
        verb="scan",
        runs=("runs/x",),
        verdict="found" if findings else "clean",
        complete=complete,
        findings=findings,
        summary={"warnings": ["near the limit"]},
    )


def finding(**given: Any) -> Finding:
    usual = {"kind": "overflow-origin", "op": "aten::bmm", "module": "blocks.0.attn"}
    return Finding(**{**usual, "source": "/home/someone/project/my model/train.py:25", **given})


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("/home/someone/project/a/train.py:25", ("a/train.py", 25)),
        ("/usr/lib/x.py:1", ("/usr/lib/x.py", 1)),
        ("/home/someone/project/../x.py:3", ("/home/someone/project/../x.py", 3)),
        ("C:\\x.py:7", ("C:\\x.py", 7)),
        ("train.py", None),
        ("train.py:0", None),
        ("train.py:-1", None),
        ("train.py:²", None),
        (":5", None),
        (None, None),
    ],
)
def test_the_place_of_a_finding(source: str | None, place: tuple[str, int] | None) -> None:
    assert place_of(finding(source=source), HERE) == place


def sarif(tmp_path: Path, *findings: Finding, complete: bool = True) -> dict[str, Any]:
    export(document(*findings, complete=complete), tmp_path / "f.sarif", here=HERE)
    log = json.loads((tmp_path / "f.sarif").read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return dict(run)


def test_sarif_has_a_rule_for_every_kind_and_a_result_for_each_finding(tmp_path: Path) -> None:
    run = sarif(tmp_path, finding(), finding(confidence="suspected", source=None))
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == list(KINDS)
    first, second = run["results"]
    (place,) = first["locations"]
    assert first["ruleId"] in rules
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "my%20model/train.py"
    assert place["physicalLocation"]["region"] == {"startLine": 25}
    assert place["logicalLocations"] == [{"fullyQualifiedName": "blocks.0.attn/aten::bmm"}]
    assert (first["level"], second["level"]) == ("error", "note")
    assert "physicalLocation" not in second["locations"][0]


def test_a_result_is_the_same_in_another_step_and_another_at_another_operator(
    tmp_path: Path,
) -> None:
    run = sarif(tmp_path, finding(step=1), finding(step=9), finding(op="aten::exp"))
    prints = [result["partialFingerprints"]["opscope/v1"] for result in run["results"]]
    assert prints[0] == prints[1] != prints[2]


def test_an_incomplete_run_is_told(tmp_path: Path) -> None:
    (told,) = sarif(tmp_path, complete=False)["invocations"]
    assert told["executionSuccessful"] is False
    assert told["toolExecutionNotifications"][0]["message"]["text"] == "near the limit"
    assert list(annotation_lines(document(complete=False), HERE)) == [
        "::warning title=opscope::the run is incomplete"
    ]
    export(document(complete=False), tmp_path / "f.xml", here=HERE)
    suite = ElementTree.parse(tmp_path / "f.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_junit_fails_the_kinds_that_were_found(tmp_path: Path) -> None:
    export(document(finding(), finding(step=7)), tmp_path / "f.xml", here=HERE)
    suite = ElementTree.parse(tmp_path / "f.xml").getroot()
    cases = {case.get("name"): case for case in suite}
    assert set(cases) == {*KINDS, "complete"}
    failed = [name for name, case in cases.items() if len(case)]
    assert failed == ["overflow-origin"]
    assert (cases["overflow-origin"][0].text or "").count("\n") == 1
    assert suite.get("tests") == str(len(cases))


def test_an_annotation_stands_at_its_line() -> None:
    (line,) = annotation_lines(document(finding(source="/home/someone/project/a,b:c.py:3")), HERE)
    assert line.startswith("::error file=a%2Cb%3Ac.py,line=3,title=opscope%3A overflow-origin::")


def test_what_a_run_holds_breaks_out_of_no_format(tmp_path: Path) -> None:
    bad = finding(op=HOSTILE, module=HOSTILE, source=f"{HOSTILE}.py:3", reasons=(HOSTILE,))
    run = sarif(tmp_path, bad)
    assert "\x1b" not in run["results"][0]["message"]["text"]
    export(document(bad), tmp_path / "f.xml", here=HERE)
    assert ElementTree.parse(tmp_path / "f.xml").getroot().get("failures") == "1"
    (line,) = annotation_lines(document(bad), HERE)
    assert "\n" not in line
    properties = line.split("::", 2)[1]
    assert properties.count(",") == 2
    assert "%0A" not in line.replace("%250A", "")


def test_an_ending_that_names_no_format_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"write \.sarif, \.xml, \.json"):
        check_ending(Path("x.txt"))
