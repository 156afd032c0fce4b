# SPDX-License-Identifier: Apache-2.0
"""The document of a sweep as JUnit XML, which continuous integration reads: a case for each
operator and type.
"""

from __future__ import annotations

from xml.etree import ElementTree

from opscope.run.finding import Document
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
    counts = {"tests": len(table) + len(broken), "failures": len(failures), "errors": len(broken)}
    suite = ElementTree.Element(
        "testsuite",
        {"name": f"opscope {document.verb}", **{key: str(count) for key, count in counts.items()}},
    )
    for row in table:
        case = ElementTree.SubElement(
            suite, "testcase", classname=row["op"], name=row["dtype"] or "no tensor"
        )
        finding = failures.get((row["op"], row["dtype"]))
        if finding is not None:
            told = printable("; ".join(finding.reasons))
            ElementTree.SubElement(
                case, "failure", message=told, type=finding.confidence
            ).text = told
        elif not row["examined"]:
            ElementTree.SubElement(case, "skipped", message=printable("; ".join(row["unjudged"])))
    for name, reason in broken.items():
        case = ElementTree.SubElement(suite, "testcase", classname=name, name="samples")
        ElementTree.SubElement(case, "error", message=printable(reason))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
