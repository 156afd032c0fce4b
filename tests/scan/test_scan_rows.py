# SPDX-License-Identifier: Apache-2.0
"""scan over rows written by hand: several ranks, dumps without versions, unread tensors, skipped
steps, crashes.
"""

from __future__ import annotations

import pytest
from tests.questions.builder import Builder, state, unread

from opscope.run.finding import Finding
from opscope.run.schema import Judgement
from opscope.run.selection import parse_selection
from opscope.scan.api import scan

NAN = {"nan": 2}


def ops(findings: tuple[Finding, ...]) -> list[str | None]:
    return [finding.op for finding in findings]


def test_an_empty_run_is_clean() -> None:
    document = scan(Builder().run())
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())
    assert document.summary["steps"] == 0


def test_where_compilation_hid_every_call_nothing_was_looked_at() -> None:
    rows = Builder()
    assert not scan(rows.run(hidden_calls=3)).complete
    rows.call("log", [state(1)], [state(2)])
    assert scan(rows.run(hidden_calls=3)).complete


def test_problems_make_a_document_incomplete() -> None:
    document = scan(Builder().run(problems=("rank 3 is missing",)))
    assert not document.complete
    assert "rank 3 is missing" in document.summary["warnings"]


def test_independent_origins_come_first_cause_first() -> None:
    rows = Builder()
    rows.call("log", [state(1)], [state(2, nan=1)])
    rows.call("sqrt", [state(3)], [state(4, nan=1)])
    rows.call("add", [state(2, nan=1), state(4, nan=1)], [state(5, nan=2)])
    assert ops(scan(rows.run()).findings) == ["aten::log.default", "aten::sqrt.default"]


def test_reached_comes_before_hidden_though_later() -> None:
    rows = Builder()
    rows.call("exp", [state(1)], [state(2, pos_inf=1)])
    rows.call("reciprocal", [state(2, pos_inf=1)], [state(3)])
    rows.call("div", [state(4), state(5)], [state(6, nan=1)])
    rows.call("mse_loss", [state(6, nan=1), state(7)], [state(8, nan=1, size=1)])
    first, second = scan(rows.run()).findings
    assert (first.op, first.evidence[0]["reached"], first.evidence[0]["path"]) == (
        "aten::div.default",
        "loss",
        ["div#2", "mse_loss#3"],
    )
    assert (second.op, second.evidence[0]["hidden_by"]) == ("aten::exp.default", "reciprocal#1")


def test_a_call_site_that_fails_in_every_step_is_one_finding() -> None:
    rows = Builder()
    for step in range(4):
        rows.step = step
        rows.call("log", [state(10 * step + 1)], [state(10 * step + 2, nan=1)], name="<root>:log#1")
    (finding,) = scan(rows.run()).findings
    assert finding.step == 0
    assert finding.evidence[1] == {"times": 4, "again_in_steps": [1, 2, 3], "also_in_this_step": []}


def test_damaged_parameters_carry_over_to_later_steps() -> None:
    rows = Builder()
    rows.call(
        "mul",
        [state(1, role="parameter", tensor_name="w")],
        [state(2, pos_inf=1)],
        phase="optimizer",
    )
    rows.call(
        "sub_",
        [state(1, role="parameter"), state(2, pos_inf=1)],
        [state(3, storage=1, neg_inf=1, role="parameter")],
        phase="optimizer",
    )
    rows.step = 1
    rows.call("mm", [state(3, storage=1, neg_inf=1, role="parameter"), state(4)], [state(5, nan=4)])
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.evidence[0]["reached"]) == ("aten::mul.default", "parameter")


def test_a_write_through_a_view_is_found_by_its_storage() -> None:
    rows = Builder()
    rows.call("zeros", [], [state(1)])
    rows.call("select", [state(1)], [state(2, storage=1)])
    rows.call("log_", [state(2, storage=1)], [state(3, storage=1, neg_inf=1, nan=1)])
    rows.call("sum", [state(4, storage=1, neg_inf=1, nan=1)], [state(5, nan=1)])
    (finding,) = scan(rows.run()).findings
    assert finding.op == "aten::log_.default"


def test_what_an_allocator_left_is_nothing_until_a_result_depends_on_it() -> None:
    rows = Builder()
    rows.call("empty", [], [unread(1)])
    rows.call("select", [unread(1)], [state(2, storage=1, nan=1)])
    rows.call("copy_", [state(2, storage=1, nan=1), state(9)], [state(3, storage=1)])
    assert scan(rows.run()).verdict == "clean"
    rows.call("sum", [state(4, storage=1, nan=1)], [state(5, nan=1)])
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.confidence) == ("aten::sum.default", "likely")
    assert "never set" in " ".join(finding.reasons)


def test_unread_inputs_make_an_origin_suspected() -> None:
    rows = Builder()
    rows.call("mm", [unread(1), state(2)], [state(3, nan=1)])
    (finding,) = scan(rows.run()).findings
    assert (finding.confidence, finding.evidence[0]["unread_inputs"]) == ("suspected", ["0"])


def test_damage_is_followed_through_what_nobody_read() -> None:
    rows = Builder()
    rows.call("log", [state(1)], [state(2, nan=1)])
    rows.call("to_sparse", [state(2, nan=1)], [unread(3)])
    rows.call("mm", [unread(3), state(4)], [state(5, nan=1)])
    (finding,) = scan(rows.run()).findings
    assert finding.op == "aten::log.default"


def test_a_rank_that_received_nan_is_not_accused() -> None:
    rows = Builder()
    for rank in (0, 1):
        bad = {"nan": 1} if rank == 0 else {}
        rows.call("log", [state(1)], [state(2, **bad)], process=rank, phase="backward")
        rows.call(
            "c10d::allreduce_",
            [state(2, slot="0.0", **bad)],
            [unread(3, slot="0.0", storage=2)],
            process=rank,
            phase="communication",
        )
        rows.call(
            "add_",
            [state(4, role="parameter"), state(3, storage=2, nan=1)],
            [state(5, nan=1, role="parameter")],
            process=rank,
            phase="optimizer",
        )
    (finding,) = scan(rows.run()).findings
    assert (finding.rank, finding.op) == (0, "aten::log.default")


def test_a_sum_over_ranks_that_overflows_is_the_collective_itself() -> None:
    rows = Builder()
    for rank in (0, 1):
        rows.call(
            "c10d::allreduce_",
            [state(2, slot="0.0")],
            [state(3, slot="0.0", storage=2, pos_inf=1)],
            process=rank,
            phase="communication",
        )
    found = scan(rows.run()).findings
    assert [(finding.rank, finding.op, finding.confidence) for finding in found] == [
        (0, "c10d::allreduce_", "likely"),
        (1, "c10d::allreduce_", "likely"),
    ]


def test_memory_that_a_collective_or_a_copy_is_to_fill_is_no_finding() -> None:
    """Sharded parameters: NaN of fresh memory in the parts handed to all_gather, in the result of a
    reduce_scatter under way.
    """
    rows = Builder()
    parameter = {"role": "parameter", "nan": 3}
    rows.call("split", [state(1)], [state(2, **parameter), state(3, slot="1", **parameter)])
    rows.call(
        "c10d::allgather_",
        [state(2, slot="0.0.0", **parameter), state(3, slot="0.0.1", **parameter)],
        [],
        phase="communication",
    )
    rows.call(
        "c10d::_reduce_scatter_base_",
        [state(4, slot="1")],
        [state(5, role="gradient", nan=2)],
        phase="communication",
    )
    rows.call(
        "copy_", [state(5, role="gradient", nan=2), state(6, slot="1")], [state(7, role="gradient")]
    )
    assert scan(rows.run()).verdict == "clean"
    rows.call("mul", [state(5, role="gradient", nan=2)], [state(8, nan=2)])
    assert ops(scan(rows.run()).findings) == ["c10d::_reduce_scatter_base_"]


def test_what_is_waited_for_is_its_collectives_result() -> None:
    rows = Builder()
    rows.call(
        "_c10d_functional::all_reduce", [state(1)], [unread(2, storage=9)], phase="communication"
    )
    rows.call(
        "_c10d_functional::_wrap_tensor_autograd",
        [unread(2, storage=9)],
        [unread(2, storage=9)],
        phase="communication",
    )
    rows.call(
        "_c10d_functional::wait_tensor",
        [unread(2, storage=9)],
        [state(3, storage=9, pos_inf=1)],
        phase="communication",
    )
    rows.call("mul", [state(3, storage=9, pos_inf=1)], [state(4, pos_inf=1)])
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.confidence) == ("_c10d_functional::all_reduce", "likely")


def test_nothing_spreads_from_rank_to_rank_without_a_collective() -> None:
    rows = Builder()
    for rank in (0, 1):
        rows.call("log", [state(1)], [state(2, nan=1)], process=rank)
    assert [finding.rank for finding in scan(rows.run()).findings] == [0, 1]


def test_the_finest_level_is_accused() -> None:
    rows = Builder()
    rows.call("torch.nn.Linear", [state(1)], [state(2, nan=1)], level="module")
    rows.call("addmm", [state(1)], [state(2, nan=1)], parent=0)
    assert [finding.call for finding in scan(rows.run()).findings] == ["addmm#1"]


def test_a_module_inside_which_nothing_was_recorded_is_accused() -> None:
    rows = Builder()
    rows.call("Net", [state(1)], [state(4, nan=1)], level="module", name="net")
    rows.call("Fused", [state(1)], [state(4, nan=1)], level="module", name="net.fused", parent=0)
    rows.call("relu", [state(1)], [state(2)], parent=0)
    (finding,) = scan(rows.run()).findings
    assert (finding.call, finding.confidence) == ("net.fused", "likely")


def test_a_dump_of_apis_without_versions() -> None:
    rows = Builder()
    nowhere = {"storage": None, "offset": None}
    rows.call(
        "Functional.log",
        [state(None, **nowhere)],
        [state(None, nan=1, min=-2.0, **nowhere)],
        level="api",
    )
    rows.call(
        "Functional.relu",
        [state(None, nan=1, min=-2.0, **nowhere)],
        [state(None, nan=1, min=0.0, **nowhere)],
        level="api",
    )
    rows.call(
        "Functional.cast",
        [state(None, nan=1, min=-0.5, **nowhere)],
        [state(None, nan=1, min=-0.5, **nowhere)],
        level="api",
    )
    (finding,) = scan(rows.run()).findings
    assert finding.op == "Functional.log"


def test_a_status_that_the_device_reported_is_believed() -> None:
    rows = Builder()
    rows.call("Add", [state(1)], [state(2)], status=0x20)
    (finding,) = scan(rows.run()).findings
    assert (finding.status, finding.confidence) == ("0x20", "proven")
    assert finding.reasons[0] == "floating-point overflow"


def test_a_status_of_a_mask_is_no_finding() -> None:
    rows = Builder()
    rows.call(
        "masked_fill",
        [state(1)],
        [state(2, neg_inf=1)],
        status=0x20,
        args='{"args": [{"tensor": "0"}, {"float": "-inf"}], "kwargs": {}}',
    )
    assert scan(rows.run()).verdict == "clean"


def test_a_result_clipped_at_the_limit_is_likely() -> None:
    rows = Builder()
    half = {"dtype": "float16"}
    rows.call(
        "Add",
        [state(1, max=40000.0, **half), state(2, max=60000.0, **half)],
        [state(3, max=65504.0, near_limit=1, **half)],
    )
    rows.call(
        "Add",
        [state(3, max=65504.0, near_limit=1, **half), state(4, **half)],
        [state(5, max=65504.0, near_limit=1, **half)],
    )
    (finding,) = scan(rows.run()).findings
    assert (finding.call, finding.confidence, finding.evidence[0]["saturated"]) == (
        "Add#0",
        "likely",
        True,
    )


def test_five_skipped_steps_in_a_row_are_a_finding() -> None:
    assert _skipping(4).verdict == "clean"
    assert [entry["step"] for entry in _skipping(4).summary["skipped_steps"]] == [0, 1, 2, 3]
    document = _skipping(5)
    assert ops(document.findings) == ["aten::mul.default"]
    assert document.summary["skipped_steps"] == []
    assert any("GradScaler" in line for line in document.summary["warnings"])


def _skipping(steps: int) -> object:
    rows = Builder()
    for step in range(steps):
        rows.step, first = step, 10 * step
        rows.call(
            "mul",
            [state(first + 1)],
            [state(first + 2, pos_inf=1)],
            phase="backward",
            name="<root>:mul~bwd#1",
        )
        rows.call(
            "_amp_foreach_non_finite_check_and_unscale_",
            [
                state(first + 2, pos_inf=1, slot="0.0", role="gradient"),
                state(first + 3, slot="1"),
                state(first + 4, slot="2"),
            ],
            [state(first + 5, pos_inf=1, slot="0.0", storage=first + 2)],
        )
    return scan(rows.run())


def test_damage_that_got_past_the_scaler_is_a_finding() -> None:
    rows = Builder()
    rows.call("mul", [state(1)], [state(2, pos_inf=1)], phase="backward")
    rows.call(
        "_amp_foreach_non_finite_check_and_unscale_",
        [state(2, pos_inf=1, slot="0.0", role="gradient")],
        [],
    )
    rows.call(
        "sub_",
        [state(4, role="parameter"), state(2, pos_inf=1)],
        [state(5, neg_inf=1, storage=4, role="parameter")],
        phase="optimizer",
    )
    assert ops(scan(rows.run()).findings) == ["aten::mul.default"]


def test_lists_of_tensors_are_judged_element_by_element() -> None:
    rows = Builder()
    rows.call("log", [state(1)], [state(2, nan=1)])
    rows.call(
        "_foreach_mul_",
        [state(2, nan=1, slot="0.0"), state(3, slot="0.1"), state(4, slot="1")],
        [state(5, nan=1, slot="0.0", storage=2), state(6, pos_inf=1, slot="0.1", storage=3)],
    )
    assert ops(scan(rows.run()).findings) == ["aten::log.default", "aten::_foreach_mul_.default"]


def test_minus_infinity_from_masks_alone_that_is_the_loss() -> None:
    rows = Builder()
    args = '{"args": [{"tensor": "0"}, {"float": "-inf"}], "kwargs": {}}'
    rows.call("masked_fill", [state(1)], [state(2, neg_inf=1)], args=args)
    rows.call("mean", [state(2, neg_inf=1)], [state(3, neg_inf=1, size=1)])
    rows.call("ones_like", [state(3, neg_inf=1, size=1)], [state(4)])
    rows.call("expand", [state(4)], [state(5)], phase="backward")
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.evidence[0]["reached"]) == ("aten::mean.default", "loss")


def test_selection_chooses_findings_and_counts_the_others() -> None:
    rows = Builder()
    rows.call("log", [state(1)], [state(2, nan=1)], module="a")
    rows.step = 3
    rows.call("sqrt", [state(3)], [state(4, nan=1)], module="b")
    document = scan(rows.run(), selection=parse_selection(steps="2-5"))
    assert ops(document.findings) == ["aten::sqrt.default"]
    assert (
        "1 findings lie outside of the selection, the first at step 0 aten::log.default forward a"
        in document.summary["warnings"]
    )
    assert ops(scan(rows.run(), selection=parse_selection(ops="log")).findings) == [
        "aten::log.default"
    ]
    assert scan(rows.run(), selection=parse_selection(ranks="1")).verdict == "clean"


@pytest.mark.parametrize(
    ("ending", "crashes"),
    [
        ({"exit_code": None, "signal": 9}, 1),
        ({"exit_code": -11, "signal": 11}, 1),
        ({"exit_code": None}, 1),
        ({"exit_code": 0}, 0),
        ({"signal": 15}, 0),
    ],
)
def test_unfinished_calls(ending: dict[str, int | None], crashes: int) -> None:
    rows = Builder()
    rows.call("Linear", [state(1)], [], level="module", error="unfinished")
    rows.call("mm", [state(1)], [], parent=0, error="unfinished")
    rows.ends(0, **ending)
    found = scan(rows.run()).findings
    assert [(finding.kind, finding.call) for finding in found] == [("crash", "mm#1")] * crashes


def test_only_an_exception_that_ended_the_program_is_a_crash() -> None:
    rows = Builder()
    rows.call("mm", [state(1)], [], error="RuntimeError: shapes")
    rows.call("add", [state(1)], [state(2)])
    rows.ends(0, exit_code=1)
    assert scan(rows.run()).verdict == "clean"
    rows.call("bmm", [state(1)], [], error="RuntimeError: out of memory\nmore")
    (finding,) = scan(rows.run()).findings
    assert (finding.kind, finding.call, finding.reasons) == (
        "crash",
        "bmm#2",
        ("RuntimeError: out of memory",),
    )
    rows.ends(0, exit_code=0)
    assert scan(rows.run()).verdict == "clean"


def test_leaving_on_purpose_is_no_crash() -> None:
    rows = Builder()
    rows.call("Net", [state(1)], [], level="module", error="SystemExit: 3")
    rows.ends(0, exit_code=3)
    assert scan(rows.run()).verdict == "clean"


def test_judgements_are_listed() -> None:
    rows = Builder()
    rows.call("mm", [state(1)], [state(2)])
    rows.judgements.append(
        Judgement(
            process=0,
            index=0,
            kind="replay-mismatch",
            substitute="float64",
            error=0.5,
            tolerance=0.1,
        )
    )
    rows.judgements.append(Judgement(process=0, index=0, kind="nondeterminism"))
    found = scan(rows.run()).findings
    assert [(finding.kind, finding.confidence) for finding in found] == [
        ("replay-mismatch", "likely"),
        ("nondeterminism", "proven"),
    ]
    assert found[0].evidence[0]["error"] == 0.5


def test_what_a_process_checked_is_told_if_it_closed() -> None:
    rows, nothing = Builder(), {"calls": 0, "checked": 0}
    rows.call("mm", [state(1)], [state(2)])
    rows.ends(0, checked={"calls": 9, "checked": 5}, rows={"calls": 1})
    rows.ends(1, checked=nothing, exit_code=-6)
    assert scan(rows.run()).summary["checked"] == {"0": {"calls": 9, "checked": 5}}


def test_a_wrong_operator_that_calls_another_wrong_one_comes_after_it_before_an_overflow_too() -> (
    None
):
    rows = Builder()
    rows.call("slogdet", [state(1)], [state(2)])
    rows.call("diagonal", [state(3)], [state(4)])
    rows.call("log", [state(4)], [state(5, nan=1)])
    sample = '{"inside": ["aten::diagonal"], "replaced": ["aten::diagonal"]}'
    rows.judgements.append(Judgement(process=0, index=0, kind="replay-mismatch", sample=sample))
    rows.judgements.append(Judgement(process=0, index=1, kind="replay-mismatch"))
    assert ops(scan(rows.run()).findings) == [
        "aten::diagonal.default",
        "aten::log.default",
        "aten::slogdet.default",
    ]


def test_a_wrong_operator_comes_before_the_crash_that_followed() -> None:
    rows = Builder()
    rows.call("searchsorted", [state(1)], [state(2)])
    rows.call("embedding", [state(3), state(2)], [], error="IndexError: index out of range in self")
    rows.judgements.append(Judgement(process=0, index=0, kind="replay-mismatch"))
    rows.ends(0, exit_code=1)
    assert ops(scan(rows.run()).findings) == [
        "aten::searchsorted.default",
        "aten::embedding.default",
    ]


def test_hidden_operators_make_an_arrival_likely_only() -> None:
    rows = Builder()
    rows.call("mm", [state(1, nan=1)], [state(2, nan=1)])
    (finding,) = scan(rows.run(hidden_calls=7)).findings
    assert (finding.confidence, finding.evidence[0]["arrived"]) == ("likely", True)
    assert scan(rows.run()).findings[0].confidence == "proven"


def test_values_near_the_limit_are_a_warning() -> None:
    rows = Builder()
    for step, largest in enumerate((2000.0, 9000.0, 30000.0, 60000.0)):
        rows.step = step
        rows.call(
            "bmm",
            [state(10 * step)],
            [state(10 * step + 1, dtype="float16", max=largest, near_limit=int(largest > 59000))],
            name="a:bmm#1",
        )
    document = scan(rows.run())
    assert document.verdict == "clean"
    assert document.summary["warnings"] == [
        (
            "rank 0: a:bmm#1 reaches 6e+04 in step 3, near the limit of float16 (65504), growing "
            "from 2e+03 in step 0"
        )
    ]


def test_underflowing_gradients_are_a_warning() -> None:
    rows = Builder()
    tiny = {"dtype": "float16", "size": 100, "zero": 60, "l2norm": 1e-6, "role": "gradient"}
    rows.call("detach", [state(1)], [state(2, **tiny)], phase="backward")
    (line,) = scan(rows.run()).summary["warnings"]
    assert line.startswith("60% of the float16 gradient elements are 0")


@pytest.mark.parametrize(
    ("norms", "losses", "kind"),
    [
        ([1.0, 30.0, 900.0, 27000.0, 810000.0], [1.0] * 5, "gradient-explosion"),
        ([1.0, 1.1, 0.9, 1.2, 1.0], [1.0] * 5, None),
        ([1.0, 1e-3, 1e-5, 1e-6, 1e-8], [1.0, 1.01, 1.0, 0.99, 1.0], "gradient-vanishing"),
        ([1.0, 1e-3, 1e-5, 1e-6, 1e-8], [1.0, 0.1, 0.01, 0.001, 1e-6], None),
        ([1.0, 10.0, 40.0, 90.0, 200.0], [1.0] * 5, None),
    ],
)
def test_gradients_over_steps(norms: list[float], losses: list[float], kind: str | None) -> None:
    rows = Builder()
    for step, (norm, loss) in enumerate(zip(norms, losses, strict=True)):
        rows.step = step
        rows.call("ones_like", [state(10 * step, size=1, max=loss)], [state(10 * step + 1)])
        rows.call(
            "detach",
            [state(10 * step + 2)],
            [state(10 * step + 3, role="gradient", l2norm=norm)],
            phase="backward",
        )
    document = scan(rows.run())
    assert [
        (finding.kind, finding.confidence, finding.step, finding.op, finding.phase)
        for finding in document.findings
    ] == ([(kind, "suspected", 4, "aten::detach.default", "backward")] if kind else [])
    assert any("gradients grow" in line for line in document.summary["warnings"]) == (
        norms[-1] == 200.0
    )


def test_what_failed_on_unsound_values_comes_after_their_origin() -> None:
    rows = Builder()
    rows.call("div", [state(1), state(2, zero=1)], [state(3, pos_inf=1)])
    rows.call(
        "multinomial",
        [state(3, pos_inf=1)],
        [],
        error="RuntimeError: probability tensor contains inf",
    )
    rows.ends(0, exit_code=1)
    first, second = scan(rows.run()).findings
    assert (first.kind, first.op, first.evidence[0]["failed_in"]) == (
        "overflow-origin",
        "aten::div.default",
        "multinomial#1",
    )
    assert (second.kind, second.evidence) == ("crash", ({"exit_code": 1, "signal": None},))


def test_consequences_in_backward_are_no_findings_of_their_own() -> None:
    rows = Builder()
    rows.call("log", [state(1)], [state(2, nan=1)])
    rows.call("mse_loss", [state(2, nan=1)], [state(3, nan=1, size=1)])
    rows.call("div", [state(4), state(5)], [state(6, pos_inf=1)], phase="backward", forward_index=0)
    rows.call("mul", [state(7), state(8)], [state(9, pos_inf=1)], phase="backward")
    rows.call("exp", [state(10)], [state(11, pos_inf=1)], phase="optimizer")
    found = scan(rows.run()).findings
    assert ops(found) == ["aten::log.default", "aten::exp.default"]
    assert [entry["call"] for entry in found[0].evidence[0]["followed_by"]] == ["div#2", "mul#3"]


def test_inf_that_its_own_autograd_node_puts_right_is_none() -> None:
    rows = Builder()
    rows.call("linalg_vector_norm", [state(1)], [state(2)])
    rows.call("div", [state(3), state(2)], [state(4, nan=1)], phase="backward", forward_index=0)
    rows.call(
        "masked_fill_", [state(4, nan=1)], [state(5, storage=4)], phase="backward", forward_index=0
    )
    assert scan(rows.run()).verdict == "clean"


def test_values_from_shared_memory_have_arrived() -> None:
    rows = Builder()
    rows.call("set_", [state(1, size=0)], [state(2, nan=1)])
    rows.call("addmm", [state(2, nan=1)], [state(3, nan=1)])
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.evidence[0]["arrived"], finding.confidence) == (
        "aten::addmm.default",
        True,
        "proven",
    )


def test_one_line_that_fails_for_every_parameter_is_one_finding() -> None:
    rows = Builder()
    for number in range(3):
        rows.call(
            "addcdiv_",
            [state(10 * number)],
            [state(10 * number + 1, nan=1)],
            phase="optimizer",
            source="/train.py:7",
        )
    (finding,) = scan(rows.run()).findings
    assert finding.evidence[1] == {
        "times": 3,
        "again_in_steps": [],
        "also_in_this_step": ["addcdiv_#1", "addcdiv_#2"],
    }


def test_origins_beyond_counting_are_said() -> None:
    rows = Builder()
    for number in range(4100):
        rows.call("log", [state(2 * number)], [state(2 * number + 1, nan=1)], source="/train.py:7")
    document = scan(rows.run())
    assert len(document.findings) == 1
    assert any("more origins" in line for line in document.summary["warnings"])


def test_gradient_rows_without_counts_are_no_trouble() -> None:
    rows = Builder()
    bare = dict.fromkeys(("size", "nan", "pos_inf", "neg_inf", "zero", "neg", "pos", "near_limit"))
    rows.call(
        "detach", [state(1)], [state(2, role="gradient", l2norm=1.0, **bare)], phase="backward"
    )
    assert scan(rows.run()).verdict == "clean"


@pytest.mark.parametrize("conversions", [1, 2])
def test_a_conversion_between_floats_hides_nothing(conversions: int) -> None:
    """Behind a result that nobody could read, the call that made it hid what it had been given."""
    rows = Builder()
    rows.call("Exp", [state(1)], [state(2, pos_inf=1)])
    rows.call("Tanh", [state(2, pos_inf=1)], [unread(3)])
    for number in range(conversions):
        made = (
            state(4 + number, dtype="float16") if number + 1 == conversions else unread(4 + number)
        )
        rows.call("Cast", [unread(3 + number)], [made])
    (finding,) = scan(rows.run()).findings
    assert (finding.op, finding.evidence[0]["hidden_by"]) == ("Exp", "Tanh#1")


def test_a_conversion_to_whole_numbers_does_hide() -> None:
    rows = Builder()
    rows.call("Exp", [state(1)], [state(2, pos_inf=1)])
    rows.call("Tanh", [state(2, pos_inf=1)], [unread(3)])
    rows.call("Cast", [unread(3)], [state(4, dtype="int32")])
    (finding,) = scan(rows.run()).findings
    assert finding.evidence[0]["hidden_by"] == "Cast#2"
