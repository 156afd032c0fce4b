# SPDX-License-Identifier: Apache-2.0
"""scan over rows of several ranks: what must be equal on all of them and is not, and what may
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.questions.builder import Builder, state

from opscope.run.finding import Finding
from opscope.scan.api import scan
from opscope.scan.exchanges import group_of, odd_ranks, ranks_of
from opscope.scan.part import ranks_apart

WEIGHT: dict[str, Any] = {"role": "parameter", "tensor_name": "fc.weight"}
GRADIENT: dict[str, Any] = {"role": "gradient", "tensor_name": "fc.weight"}


def args(ranks: str = "0-1", name: str = "0") -> str:
    tree = {
        "args": [[{"tensor": "0.0"}], {"object": {"process_group": name, "ranks": ranks}}],
        "kwargs": {},
    }
    return msgspec.json.encode(tree).decode()


def all_reduce(rows: Builder, process: int, before: int, after: int, **columns: Any) -> None:
    columns = {"phase": "communication", "args": args(), **columns}
    rows.call("c10d::allreduce_", [content(before)], [content(after)], process=process, **columns)


def content(number: int, **changes: Any) -> dict[str, Any]:
    """A tensor whose content is one number."""
    return state(
        number,
        digest=number,
        **{"l2norm": 1.0 + number, "mean": 0.1 * number, "slot": "0.0", **changes},
    )


Change = Callable[[int, int], dict[str, int]]


def trained(change: Change = lambda rank, step: {}, *, steps: int = 3, groups: int = 1) -> Builder:
    """Two ranks that train one weight together, its content 100 + step; change says what differs on
    a rank in a step.

    weight: what it reads; local: its gradient before the exchange; gradient: after it; lost: no
    exchange; clipped: what is made of it; unused: no update; counted: the step it is counted in.
    """
    rows = Builder()
    for rank in range(2):
        for step in range(steps):
            rows.step, at = step, {"process": rank, "source": "/train.py:7"}
            told = {
                "weight": 100 + step,
                "gradient": 200 + step,
                "after": 101 + step,
                **change(rank, step),
            }
            rows.step = told.get("counted", step)
            local = told.get("local", 300 + 10 * rank + step)
            rows.call(
                "mm", [content(told["weight"], **WEIGHT)], [content(400 + 10 * rank + step)], **at
            )
            rows.call(
                "mm", [content(500 + rank)], [content(local, **GRADIENT)], phase="backward", **at
            )
            if not told.get("lost"):
                place = "0-1" if groups == 1 else str(rank)
                rows.call(
                    "c10d::allreduce_",
                    [content(local, **GRADIENT)],
                    [content(told["gradient"], **GRADIENT)],
                    phase="communication",
                    args=args(place),
                    **at,
                )
            used = told["gradient"] if not told.get("lost") else local
            if "clipped" in told:
                rows.call(
                    "mul_",
                    [content(used, **GRADIENT)],
                    [content(told["clipped"], **GRADIENT)],
                    phase="optimizer",
                    **at,
                )
                used = told["clipped"]
            if told.get("unused"):
                continue
            inputs = [content(told["weight"], **WEIGHT), content(used, **GRADIENT, slot="1")]
            columns = {
                "args": '{"args": [0.1], "kwargs": {}}',
                **({"args": told["args"]} if "args" in told else {}),
            }
            rows.call(
                "add_",
                inputs,
                [content(told["after"], **WEIGHT)],
                phase="optimizer",
                **columns,
                **at,
            )
    return rows


def mismatches(rows: Builder) -> list[Finding]:
    return [finding for finding in scan(rows.run()).findings if finding.kind == "rank-mismatch"]


def test_ranks_that_stay_together_are_clean() -> None:
    assert scan(trained().run()).verdict == "clean"


def test_a_weight_that_was_never_the_same_is_told_where_it_is_first_read() -> None:
    (finding,) = mismatches(
        trained(lambda rank, step: {"weight": 900 + step, "after": 901 + step} if rank else {})
    )
    assert (finding.rank, finding.step, finding.op, finding.phase) == (
        1,
        0,
        "aten::mm.default",
        "forward",
    )
    assert "fc.weight" in finding.reasons[0]
    assert finding.evidence[0]["other"]["rank"] == 0


def test_a_weight_that_parts_later_is_told_at_the_call_that_wrote_it() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        return (
            {"after": 901 + step, **({"weight": 900 + step} if step > 1 else {})}
            if rank and step
            else {}
        )

    (finding,) = mismatches(trained(change))
    assert (finding.rank, finding.step, finding.op, finding.phase) == (
        1,
        1,
        "aten::add_.default",
        "optimizer",
    )


def test_a_rate_that_only_one_rank_has_is_named() -> None:
    def change(rank: int, step: int) -> dict[str, Any]:
        own = {"args": '{"args": [0.2], "kwargs": {}}'} if rank else {}
        return {
            **own,
            **({"after": 901 + step, **({"weight": 900 + step} if step else {})} if rank else {}),
        }

    (finding,) = mismatches(trained(change))
    assert (finding.rank, finding.step) == (1, 0)
    assert "argument 0 is 0.2, rank 0 has 0.1" in finding.reasons


def test_a_gradient_that_one_rank_changes_after_the_exchange_is_told_at_the_change() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        own = {"clipped": 600 + 10 * rank + step}
        return {
            **own,
            **({"after": 901 + step, **({"weight": 900 + step} if step else {})} if rank else {}),
        }

    finding = mismatches(trained(change))[0]
    assert (finding.rank, finding.step, finding.op) == (1, 0, "aten::mul_.default")
    assert "gradient differs" in finding.reasons[0]


def test_a_gradient_that_one_rank_does_not_exchange() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        if rank and step >= 1:
            return {
                "lost": int(step == 1),
                "after": 901 + step,
                **({"weight": 900 + step} if step > 1 else {}),
            }
        return {}

    found = mismatches(trained(change))
    assert {finding.step for finding in found} == {1}
    words = " ".join(reason for finding in found for reason in finding.reasons)
    assert "rank 1 does not run this collective" in words
    assert "on rank 1 none did" in words


def test_a_step_that_one_rank_leaves_out_is_told_at_the_gradient_that_it_does_not_use() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        if not rank or not step:
            return {}
        later = {"counted": step - 1, "weight": 899 + step, "after": 900 + step}
        return {"unused": 1} if step == 1 else {**later, **({"weight": 101} if step == 2 else {})}

    found = mismatches(trained(change, steps=4))
    (words,) = [reason for each in found for reason in each.reasons if "fc.weight" in reason]
    assert "rank 1 computes the next one before it has used it" in words


def test_a_parameter_that_parts_in_the_last_step_while_others_are_exchanged() -> None:
    rows = trained(lambda rank, step: {"lost": 1, "after": 950} if rank and step == 2 else {})
    other = trained()
    rows.calls.extend(
        msgspec.structs.replace(call, index=call.index + 1000, name=f"other {call.name}")
        for call in other.calls
    )
    named = {"fc.weight": "head.weight", None: None}
    for row in other.tensors:
        changed = msgspec.structs.replace(
            row,
            index=row.index + 1000,
            tensor_name=named[row.tensor_name],
            version=(row.version or 0) + 5000,
        )
        rows.tensors.append(changed)
    words = [
        reason
        for finding in mismatches(rows)
        for reason in finding.reasons
        if reason.startswith("fc.weight")
    ]
    assert len(words) == 1


def test_shards_of_a_weight_are_no_replicas() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        return {
            name: value + 50 * rank
            for name, value in {
                "weight": 100 + step,
                "gradient": 200 + step,
                "after": 101 + step,
            }.items()
        }

    assert scan(trained(change, groups=2).run()).verdict == "clean"


def test_an_owner_that_updates_and_sends_what_others_take_over_is_clean() -> None:
    """ZeRO: in one call the other rank has the old content and then the new one."""
    rows = Builder()
    for rank in range(2):
        at: dict[str, Any] = {"process": rank}
        for step in range(20):
            rows.step, old, new = step, 100 + step, 101 + step
            place = 1000 * (rank + 1) + 10 * step
            weight = [{**content(old, **WEIGHT), "version": place}]
            gradient = [{**content(200 + step, **GRADIENT), "version": place + 1}]
            rows.call("mm", weight, [content(300 + place)], **at)
            rows.call("mm", [content(400 + rank)], gradient, phase="backward", **at)
            held = old
            if rank == 0:
                wrote = [{**content(new, **WEIGHT), "version": place + 2}]
                rows.call("add_", [*weight, *gradient], wrote, phase="optimizer", **at)
                held = new
            sent = [{**content(held, **WEIGHT), "version": place + 3, "slot": "0.0"}]
            came = [{**content(new, **WEIGHT), "version": place + 4, "slot": "0.0"}]
            rows.call("c10d::broadcast_", sent, came, phase="communication", args=args(), **at)
    assert scan(rows.run()).verdict == "clean"


def test_two_parameters_of_one_name_are_told_apart_by_their_shapes() -> None:
    """A gate that all ranks train and each rank's own expert, called as models of their own."""
    rows = trained()
    for rank in range(2):
        for step in range(3):
            rows.step, own = step, 700 + 10 * rank + step
            expert = [content(own, **WEIGHT, shape=(8,))]
            came = [content(own + 1, **WEIGHT, shape=(8,))]
            rows.call("mul", expert, [content(own + 100)], process=rank)
            rows.call("sub_", expert, came, process=rank, phase="optimizer")
    assert mismatches(rows) == []


def test_models_that_are_averaged_now_and_then_are_clean() -> None:
    def change(rank: int, step: int) -> dict[str, int]:
        return {
            "lost": 1,
            "after": 700 + 10 * rank + step,
            "weight": 100 if not step else 699 + 10 * rank + step,
        }

    assert scan(trained(change).run()).verdict == "clean"


def test_collectives_in_another_order_are_told_at_the_first() -> None:
    rows = Builder()
    for rank, ops in enumerate((("allreduce_", "allgather_"), ("allgather_", "allreduce_"))):
        for op in ops:
            rows.call(
                f"c10d::{op}",
                [content(1)],
                [content(2)],
                process=rank,
                phase="communication",
                args=args(),
            )
    (finding,) = mismatches(rows)
    assert (finding.rank, finding.op) == (1, "c10d::allgather_")
    assert "where rank 0 runs allreduce_" in finding.reasons[0]


def test_what_a_rank_sends_is_not_what_all_ranks_get() -> None:
    rows = Builder()
    for rank in (0, 1):
        sent = content(10 + rank, slot="1.0")
        rows.call(
            "c10d::allgather_",
            [content(1, slot="0.0.0"), sent],
            [content(2, slot="0.0.0"), sent],
            process=rank,
            phase="communication",
            args=args(),
        )
    assert scan(rows.run()).findings == ()


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ((0, 1, 1), 0),  # torch's Join: rank 0 runs what belongs to the others' next step
        ((0, 2, 2), 1),  # one left out, and made up for later
    ],
)
def test_a_rank_without_data_keeps_the_others_company_in_its_last_step(
    others: tuple[int, ...], told: int
) -> None:
    rows = Builder()
    for rank, steps in enumerate((others, (0, 1, 2))):
        for number, step in enumerate(steps):
            rows.step = step
            all_reduce(rows, rank, 10 * rank + number, 50 + number)
    assert len(mismatches(rows)) == told


@pytest.mark.parametrize(("codes", "told"), [((0, None), 0), ((0, 1), 1)])
def test_collectives_that_nobody_saw_of_ranks_that_ended_well_are_not_left_out(
    codes: tuple[int | None, ...], told: int
) -> None:
    """What PowerSGD begins in a future's callback runs on a thread of the backend on one rank."""
    rows = Builder()
    for rank in range(2):
        for number in range(3 - rank):
            all_reduce(rows, rank, 10 * rank + number, 50 + number)
        rows.step = 1
        all_reduce(rows, rank, 90 + rank, 99)
        rows.step = 0
    for rank, code in enumerate(codes):
        rows.ends(rank, exit_code=code)
    assert len(mismatches(rows)) == told


def test_collectives_of_other_shapes_are_told() -> None:
    rows = Builder()
    for rank, shape in enumerate(((4,), (4,), (8,))):
        changes = {"shape": shape, "size": shape[0]}
        rows.call(
            "c10d::allreduce_",
            [content(1, **changes)],
            [content(2, **changes)],
            process=rank,
            phase="communication",
            args=args("0-2"),
        )
    (finding,) = mismatches(rows)
    assert finding.rank == 2
    assert "allreduce_ of [8] where rank 0 runs allreduce_ of [4]" in finding.reasons[0]


def test_a_result_that_differs_is_told_unless_it_is_rounding() -> None:
    rows = Builder()
    for rank in range(2):
        all_reduce(rows, rank, 10 + rank, 20)
        all_reduce(rows, rank, 10 + rank, 30 + rank)
    (finding,) = mismatches(rows)
    assert (finding.rank, finding.index) == (1, 1)
    close = Builder()
    for rank in range(2):
        rounded = content(30 + rank, l2norm=1.0 + 1e-8 * rank, mean=0.0)
        close.call(
            "c10d::allreduce_",
            [content(1)],
            [rounded],
            process=rank,
            phase="communication",
            args=args(),
        )
    assert mismatches(close) == []


def test_groups_of_their_own_and_unknown_groups_are_let_alone() -> None:
    for given_args in (None, args("0"), args("0-3", "tp")):
        rows = Builder()
        for rank in range(2):
            own = args(str(rank)) if given_args == args("0") else given_args
            all_reduce(rows, rank, 10 + rank, 30 + rank, args=own)
        assert mismatches(rows) == []


def test_a_rank_that_died_is_not_blamed_for_what_it_did_not_reach() -> None:
    rows = Builder()
    all_reduce(rows, 0, 1, 2)
    all_reduce(rows, 0, 2, 3)
    all_reduce(rows, 1, 1, 2)
    rows.ends(1, exit_code=1)
    assert mismatches(rows) == []


@pytest.mark.parametrize(
    ("step", "code", "told"),
    [
        (1, 1, 0),  # in the last step, of a job that did not end well: rank 2 may not have sent
        (0, 1, 1),
        (1, 0, 1),
    ],
)
def test_what_has_not_arrived_of_a_rank_that_is_looked_at_elsewhere_is_no_mismatch(
    step: int, code: int, told: int
) -> None:
    rows = Builder()
    for rank in range(2):
        for rows.step in range(2):
            odd = rank == 1 and rows.step == step
            all_reduce(rows, rank, 10 * rank + rows.step, 70 if odd else 50, args=args("0-2"))
        rows.ends(rank, exit_code=code)
    assert len(ranks_apart(rows.run(), frozenset({0, 1}))) == told


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("0-6:2", (0, 2, 4, 6)),
        ("0,3,5", (0, 3, 5)),
        ([1, 2], (1, 2)),
        ("x", ()),
        ("0-99999999999", ()),
        ("0-3:0", ()),
    ],
)
def test_ranks_in_words(given: Any, wanted: tuple[int, ...]) -> None:
    assert ranks_of(given) == wanted


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_arguments_of_any_form_name_a_group_or_none(tree: Any) -> None:
    found = group_of(msgspec.json.encode(tree).decode())
    assert found is None or found[1]


def test_the_odd_ranks_are_those_that_differ_from_most() -> None:
    assert odd_ranks({0: "a", 1: "b"}) == [1]
    assert odd_ranks({0: "a", 1: "b", 2: "b"}) == [0]
    assert odd_ranks({0: "a", 1: "a"}) == []
