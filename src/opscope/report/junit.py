# SPDX-License-Identifier: Apache-2.0
"""Documents as JUnit XML, which continuous integration reads: of a sweep a case for each operator
and type, of a run one for each kind of finding.
"""

from __future__ import annotations

from xml.etree import ElementTree

from opscope.run.finding import KINDS, Document
from opscope.run.printable import printable


def junit_text(document: Document) -> str:
    """One suite; a case fails by what is wrong in it, and is an error where the samples of an
    operator ended their process.
    """
    table, broken = document.summary["table"], document.summary["broken"]
    failures = {
        (finding.op, str(finding.evidence[0]["dtype"])): finding
        for finding in reversed(document.findings)
    }
    tests = len(table) + len(broken)
    suite = _suite(document, tests=tests, failures=len(failures), errors=len(broken))
    for row in table:
        case = ElementTree.SubElement(
            suite, "testcase", classname=row["op"], name=row["dtype"] or "no tensor"
        )
        finding = failures.get((row["op"], row["dtype"]))
        if finding is not None:
            reasons = printable("; ".join(finding.reasons))
            ElementTree.SubElement(
                case, "failure", message=reasons, type=finding.confidence
            ).text = reasons
        elif not row["examined"]:
            ElementTree.SubElement(case, "skipped", message=printable("; ".join(row["unjudged"])))
    for name, reason in broken.items():
        case = ElementTree.SubElement(suite, "testcase", classname=name, name="samples")
        ElementTree.SubElement(case, "error", message=printable(reason))
    return _text(suite)


def findings_junit(document: Document) -> str:
    """One suite with a case for each kind of finding, which fails by those of its kind, and one for
    the run being complete.
    """
    by_kind = {kind: [each for each in document.findings if each.kind == kind] for kind in KINDS}
    suite = _suite(
        document,
        tests=len(by_kind) + 1,
        failures=sum(map(bool, by_kind.values())),
        errors=int(not document.complete),
    )
    named = printable(" ".join(document.runs))
    for kind, findings in by_kind.items():
        case = ElementTree.SubElement(suite, "testcase", classname=named, name=kind)
        if findings:
            lines = [printable(each.line()) for each in findings]
            ElementTree.SubElement(
                case, "failure", message=lines[0], type=findings[0].confidence
            ).text = "\n".join(lines)
    case = ElementTree.SubElement(suite, "testcase", classname=named, name="complete")
    if not document.complete:
        lines = [printable(str(line)) for line in document.summary.get("warnings", ())]
        ElementTree.SubElement(case, "error", message="the run is incomplete").text = "\n".join(
            lines
        )
    return _text(suite)


def _suite(document: Document, **counts: int) -> ElementTree.Element:
    texts = {name: str(count) for name, count in counts.items()}
    return ElementTree.Element("testsuite", {"name": f"opscope {document.verb}", **texts})


def _text(suite: ElementTree.Element) -> str:
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
