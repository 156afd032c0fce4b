# SPDX-License-Identifier: Apache-2.0
"""What the overflow status of a saturating device adds to results at the limit of their type."""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.run.finding import Document
from opscope.scan.api import scan

HALF: dict[str, Any] = {"dtype": "float16", "shape": (2, 2), "device": "npu:0"}
CHECK = "aten::_amp_foreach_non_finite_check_and_unscale_.default"


def product(rows: Builder, *, largest: float, number: int) -> None:
    given = {"min": -300.0, "max": 300.0}
    args = '{"args":[{"tensor":"0"},{"tensor":"1"}]}'
    inputs = [state(number, **HALF, **given), state(number + 1, **HALF, **given)]
    result = state(number + 2, **HALF, max=largest)
    rows.call("mm", inputs, [result], source=f"/t.py:{number}", args=args)


def scanned(
    status: dict[str, Any] | None,
    *,
    saturated: tuple[int, ...] = (2,),
    times: int = 1,
    cleared: tuple[int, ...] = (),
    skipped: tuple[int, ...] = (),
) -> Document:
    """Five steps with a product each, at the limit in some; the program clears the status in
    some.
    """
    rows = Builder()
    for rows.step in range(5):
        for again in range(times):
            largest = 65504.0 if rows.step in saturated else 9.0
            product(rows, largest=largest, number=10 * (5 * rows.step + again) + 1)
        if rows.step in cleared:
            rows.call(CHECK, [state(900 + rows.step)], [state(950 + rows.step)])
    told = {} if status is None else {"torch": {"float status": {"npu:0": status}}}
    rows.ends(0, exit_code=0, skipped_steps=skipped, steps=5, **told)
    return scan(rows.run())


def test_a_raised_status_confirms_a_result_at_the_limit() -> None:
    (without,) = scanned(None).findings
    assert without.confidence == "likely"
    (found,) = scanned({"read": [0, 4], "raised": [[2, 2, 4]]}).findings
    assert (found.step, found.confidence) == (2, "proven")
    assert "the device raised its overflow status in step 2" in found.reasons


def test_what_takes_the_place_of_an_infinity_did_not_overflow() -> None:
    rows = Builder()
    given = state(1, **HALF, max=5.0, pos_inf=1, pos=2, neg=1)
    rows.call("nan_to_num", [given], [state(2, **HALF, max=65504.0)])
    told = {"npu:0": {"read": [0, 0], "raised": [[0, 0, 0]]}}
    rows.ends(0, exit_code=0, torch={"float status": told})
    assert "aten::nan_to_num.default" not in {each.op for each in scan(rows.run()).findings}


@pytest.mark.parametrize("given", [5.0, 65504.0])
def test_a_result_at_the_limit_of_a_call_whose_bound_nobody_knows(given: float) -> None:
    rows = Builder()
    before = rows.call("exp", [state(1, **HALF, max=given)], [state(2, **HALF, max=65504.0)])
    rows.step = 1
    found = rows.call("exp", [state(3, **HALF, max=given)], [state(4, **HALF, max=65504.0)])
    told = {"npu:0": {"read": [0, 1], "raised": [[1, 1, 1]]}}
    rows.ends(0, exit_code=0, torch={"float status": told})
    document = scan(rows.run())
    accused = [(each.index, each.confidence) for each in document.findings]
    assert accused == ([(found, "likely")] if given == 5.0 else [])
    assert bool(document.summary["warnings"]) == (given != 5.0)
    assert before != found


def test_of_several_nobody_knows_which() -> None:
    found = scanned({"read": [0, 4], "raised": [[2, 2, 2]]}, times=2).findings
    assert {each.confidence for each in found} == {"likely"}


def test_a_status_that_stayed_clear_is_doubt() -> None:
    (found,) = scanned({"read": [0, 4], "raised": []}).findings
    assert found.confidence == "suspected"
    assert "but the device raised no overflow status in step 2" in found.reasons


@pytest.mark.parametrize(
    ("status", "cleared"),
    [
        ({"read": [0, 4], "raised": []}, (2,)),  # by the program, before it was read
        ({"read": [0, 4], "raised": [[1, 1, 4]]}, ()),  # raised before
        ({"read": [3, 4], "raised": []}, ()),  # not asked yet
    ],
)
def test_what_cannot_be_told_changes_nothing(
    status: dict[str, Any], cleared: tuple[int, ...]
) -> None:
    (found,) = scanned(status, cleared=cleared).findings
    assert found.confidence == "likely"
    assert "status" not in " ".join(found.reasons)


def test_one_that_was_cleared_and_raised_again() -> None:
    (found,) = scanned({"read": [0, 4], "raised": [[1, 1, 4]]}, cleared=(2,)).findings
    assert found.confidence == "proven"


def test_a_status_that_no_call_explains_is_said() -> None:
    document = scanned({"read": [0, 4], "raised": [[1, 1, 1], [3, 3, 4]]}, saturated=())
    assert document.verdict == "clean"
    (warning,) = document.summary["warnings"]
    assert "npu:0 raised its overflow status in step 1 (and 1 more time)" in warning
    assert not scanned({"read": [0, 4], "raised": [[2, 2, 4]]}).summary["warnings"]


def test_a_step_that_the_scaler_skipped_on_purpose_is_no_finding() -> None:
    status = {"read": [0, 4], "raised": []}
    document = scanned(status, saturated=(0, 1), cleared=(0, 1, 2, 3, 4), skipped=(0, 1))
    assert document.verdict == "clean"
    assert [each["step"] for each in document.summary["skipped_steps"]] == [0, 1]
    steps = (0, 1, 2, 3, 4)
    assert scanned(status, saturated=steps, cleared=steps, skipped=steps).verdict == "found"


def test_facts_of_another_form_count_for_nothing() -> None:
    (found,) = scanned({"read": "later"}).findings
    assert found.confidence == "likely"
