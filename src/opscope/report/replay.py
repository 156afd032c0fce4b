# SPDX-License-Identifier: Apache-2.0
"""A replay as CSV: the standard checker's columns (msprobe's accuracy_checking_details), then
opscope's own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.errors import UsageError
from opscope.report.table import harmless

if TYPE_CHECKING:
    from opscope.replay.api import Line

STANDARD = (
    "API Name",
    "Bench Dtype",
    "DEVICE Dtype",
    "Shape",
    "余弦相似度",
    "最大绝对误差",
    "双百指标",
    "双千指标",
    "双万指标",
    "二进制一致错误率",
    "误差均衡性",
    "均方根误差",
    "小值域错误占比",
    "相对误差最大值",
    "相对误差平均值",
    "inf/nan错误率",
    "相对误差错误率",
    "绝对误差错误率",
    "ULP误差最大值",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "Status",
    "Message",
)
OWN = (
    "Rank",
    "Step",
    "Index",
    "Operator",
    "Phase",
    "Verdict",
    "Nature",
    "Error",
    "Tolerance",
    "Own Error",
    "Against",
    "Substitute",
    "Inputs",
    "Seconds",
)
STATUS = {
    "agree": "pass",
    "ill-conditioned": "warning",
    "flaky": "warning",
    "unknown": "SKIP",
    "wrong": "error",
}


def write_csv(path: Path, lines: Iterable[Line]) -> None:
    """One row for each output of each call, one for a call that could not be replayed; UsageError
    when it cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow((*STANDARD, *OWN))
            for line in lines:
                for row in rows_of(line):
                    writer.writerow([cell(row.get(column)) for column in (*STANDARD, *OWN)])
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}); give another name with --csv"
        ) from error


def rows_of(line: Line) -> list[dict[str, Any]]:
    """The rows of one call, by column."""
    verdict = line.verdict
    own = {
        "Rank": line.rank,
        "Step": line.step,
        "Index": line.index,
        "Operator": line.op,
        "Phase": line.phase,
        "Verdict": line.word,
        "Nature": line.nature or "",
        "Error": verdict.get("error"),
        "Tolerance": verdict.get("tolerance"),
        "Own Error": verdict.get("own_error"),
        "Against": line.against,
        "Substitute": line.substitute,
        "Inputs": line.values,
        "Seconds": line.seconds,
        "Message": line.reason or verdict.get("reason", ""),
    }
    if not line.metrics:
        return [{"API Name": line.call, "Status": STATUS.get(line.word, "SKIP"), **own}]
    rows = []
    for output in line.metrics:
        slot = str(output.get("slot", "")).removeprefix("written:")
        status = STATUS.get(str(output.get("verdict")), "SKIP")
        rows.append({**own, **output, "API Name": f"{line.call}.output.{slot}", "Status": status})
    return rows


def cell(value: Any) -> str:
    """A value as a cell that no spreadsheet takes for a formula; numbers with 14 decimals as the
    standard checker has them.
    """
    if value is None:
        return ""
    return f"{value:.14g}" if isinstance(value, float) else harmless(str(value))
