# SPDX-License-Identifier: Apache-2.0
"""`opscope check-op`: what is swept, what is told of it, and that a kernel which ends its process
ends no sweep.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from opscope.cli import main
from opscope.errors import FormatError, UsageError
from opscope.report.junit import junit_text
from opscope.repro.answering import AnsweringProcess
from opscope.sweep.api import Plan, answer_of, document_of, merged, resumed_answers
from opscope.sweep.examiner import sweep
from opscope.sweep.samples import Program, check_registered, layouts, meant
from opscope.sweep.tasks import Answer, Counts, Task
from tests.substitute.test_witness import blockwise_wrong, define


@pytest.fixture
def lossy(library: Any) -> Any:
    """An operator whose vector body is wrong in float32."""
    return define(library, "lossy(Tensor x) -> Tensor", blockwise_wrong)


def programs(func: Any) -> list[Program]:
    return [
        Program("lossy", torch.float32, partial(func, torch.linspace(0, 1, size)))
        for size in (4, 67)
    ]


def test_a_wrong_call_is_told_once_for_its_signature(lossy: Any) -> None:
    told: list[Any] = []
    counts = list(sweep(programs(lossy), "opscope_witness::lossy", told.append).counts.values())
    assert [(count.op, count.dtype, count.examined, count.wrong) for count in counts] == [
        ("opscope_witness::lossy", "float32", 2, 1)
    ]
    (found,) = told
    assert (found.verdict.verdict, found.verdict.elements, found.verdict.witnesses) == (
        "wrong",
        64,
        2,
    )
    document = document_of(
        [Answer(name="lossy", wrong=tuple(told), counts=tuple(counts))], Plan(), "lossy"
    )
    assert (document.verdict, document.findings[0].confidence) == ("found", "proven")
    suite = ElementTree.fromstring(junit_text(document))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "alone the operator gives" in str(suite[0][0].get("message"))


def test_right_calls_and_programs_that_raise_are_told_nothing_of() -> None:
    told: list[Any] = []
    right = Program("add", torch.float32, lambda: torch.ones(3) + 1)
    raising = Program("add", torch.float32, lambda: torch.ones(3) + torch.ones(4))
    swept = sweep([raising, right], "aten::add", told.append)
    assert [count.wrong for count in swept.counts.values()] == [0]
    assert told == []


def test_an_operator_made_of_others_tells_which() -> None:
    program = Program("softmax", torch.float32, lambda: torch.randn(3).softmax(0))
    swept = sweep([program], "aten::softmax", [].append)
    answer = Answer(name="softmax", others=tuple(swept.others))
    document = document_of([answer], Plan(pattern="aten::softmax"), "aten::softmax")
    assert not document.complete
    assert "its samples ran aten::_softmax;" in document.summary["warnings"][0]


def test_counts_of_several_processes_are_one_row() -> None:
    one, other = (
        Counts(op="aten::add.Tensor", dtype="float32", examined=3, unjudged={"sparse": 1})
        for _ in range(2)
    )
    (row,) = merged([one, other])
    assert (row.examined, row.unjudged) == (6, {"sparse": 2})


class Info:
    aliases = ()
    aten_name = ""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten::gelu", "nn.functional.gelu"),
        ("aten::gelu_backward", "nn.functional.gelu"),
        ("aten::special_i1", "special.i1"),
        ("aten::native_group_norm", "nn.functional.group_norm"),
        ("aten::linalg_vector_norm", "linalg.vector_norm"),
    ],
)
def test_an_operator_is_found_among_samples_by_its_name(op: str, name: str) -> None:
    assert meant(Info(name), op)
    assert not meant(Info("nn.functional.softmax"), op)


def test_an_operator_that_torch_does_not_have_is_told_with_its_nearest() -> None:
    check_registered("aten::_softmax")
    check_registered("aten::_fused_sgd_")
    with pytest.raises(UsageError, match=r"no operator aten::sofmax; near it: .*aten::softmax"):
        check_registered("aten::sofmax")
    with pytest.raises(UsageError, match=r"no operator zzz::qqqqqqqq$"):
        check_registered("zzz::qqqqqqqq")


def test_a_process_that_ends_is_told_of() -> None:
    for code, reason in (
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended with signal 9"),
        ("input(); input()", "no answer after 0.5 s"),
    ):
        with AnsweringProcess([sys.executable, "-c", code], os.environ) as process:
            assert (
                reason
                in answer_of(process, Task(name="add"), 0.5 if "input" in code else 60).reason
            )


def test_words_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-op"]) == 2
    assert main(["check-op", "aten::add", "--all"]) == 2
    assert "wants an operator, or --all" in capsys.readouterr().err


@pytest.mark.zoo
def test_an_operator_that_is_right_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("expecttest")
    pytest.importorskip("scipy")
    assert (
        main(
            [
                "check-op",
                "aten::sigmoid",
                "--dtype",
                "float32",
                "--junit",
                str(tmp_path / "told.xml"),
                "--json",
            ]
        )
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["complete"]) == ("clean", True)
    assert {row["op"] for row in document["summary"]["table"]} == {"aten::sigmoid"}
    assert ElementTree.parse(tmp_path / "told.xml").getroot().get("failures") == "0"


def test_a_sweep_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    asked: list[str] = []

    def answered(names: Sequence[str]) -> Iterator[Answer]:
        for name in names:
            asked.append(name)
            if name == "third":
                raise KeyboardInterrupt
            yield Answer(name=name)

    file, plan, names = (
        tmp_path / "answers",
        Plan(dtypes=("float32",)),
        ("first", "second", "third"),
    )
    with pytest.raises(KeyboardInterrupt):
        list(resumed_answers(file, plan, names, answered))
    file.write_bytes(file.read_bytes() + b'{"name": "thi')  # ended while it was written
    again = resumed_answers(file, plan, names, lambda names: (Answer(name=name) for name in names))
    assert [answer.name for answer in again] == list(names)
    assert asked == list(names)
    assert [answer.name for answer in resumed_answers(file, plan, names, answered)] == list(names)
    with pytest.raises(UsageError, match="other options"):
        list(resumed_answers(file, Plan(), names, answered))
    file.write_text("[1]\n")
    with pytest.raises(UsageError, match="other options"):
        list(resumed_answers(file, plan, names, answered))
    file.write_text("no\n")
    with pytest.raises(FormatError, match="no answers"):
        list(resumed_answers(file, plan, names, answered))


def test_a_tensor_without_memory_and_a_sparse_one_end_no_sweep() -> None:
    def zero() -> None:
        x = torch.randn(4, requires_grad=True)
        x.sgn().backward(torch.randn(4))

    told: list[Any] = []
    swept = sweep([Program("sgn", torch.float32, zero)], None, told.append)
    assert told == []
    assert any(count.op == "aten::sgn" for count in swept.counts.values())
    sample = SimpleNamespace(input=torch.eye(3).to_sparse(), args=())
    assert list(layouts(sample)) == [sample]
