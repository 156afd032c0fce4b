# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from opscope.report.terminal import (
    keeping_command,
    next_command,
    print_verdict,
    verdict_lines,
)
from opscope.run.finding import Document, Finding, Forward, Slot


def slot(number: str, dtype: str, shape: tuple[int, ...], **stats: Any) -> Slot:
    return Slot(slot=number, dtype=dtype, shape=shape, stats=stats)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("\n" * 40 + "        scores = q @ k.transpose(-1, -2)\n")
    return path


@pytest.fixture
def finding(program: Path) -> Finding:
    return Finding(
        kind="overflow-origin",
        rank=0,
        step=3,
        index=1234,
        call="blocks.2.attn:bmm#1",
        op="aten::bmm.default",
        phase="forward",
        module="blocks.2.attn",
        source=f"{program}:41",
        status="0x400",
        reasons=("accumulation overflow",),
        evidence=(
            {
                "reached": "loss",
                "reached_at": {"step": 3, "call": "<root>:nll_loss#1"},
                "hidden_by": None,
                "arrived": False,
                "path": [
                    "blocks.2.attn:bmm#1",
                    "blocks.2.attn:_softmax#1",
                    "blocks.2.attn:bmm#2",
                    "<root>:nll_loss#1",
                ],
                "nan_at": "blocks.2.attn:_softmax#1",
            },
        ),
        inputs=(
            slot("0", "float16", (32, 128, 64), min=-310.0, max=298.0),
            slot("1", "float16", (32, 64, 128), min=-287.0, max=305.0),
        ),
        outputs=(slot("0", "float16", (32, 128, 128), min=-60000.0, max=64000.0, pos_inf=37),),
    )


def document(*findings: Finding, **summary: Any) -> Document:
    facts = {"steps": 6, "calls_per_step": 907, "ranks": [0], "overhead": 1.114, **summary}
    return Document(
        opscope="0",
        verb="scan",
        runs=("runs/demo",),
        verdict="found" if findings else "clean",
        findings=findings,
        summary=facts,
    )


def drawn(found: Document, here: Path, width: int = 80) -> list[str]:
    return [text.plain for text in verdict_lines(found, width=width, here=here)]


def test_the_verdict(finding: Finding, tmp_path: Path) -> None:
    assert drawn(document(finding), tmp_path, width=72) == [
        "opscope  6 steps, 907 calls a step, 1 rank                     runs/demo",
        "first overflow  step 3  aten::bmm  forward  blocks.2.attn",
        "  train.py:41   scores = q @ k.transpose(-1, -2)",
        "  in   f16[32, 128, 64] x∈[-310, 298]   f16[32, 64, 128] x∈[-287, 305]",
        "  out  f16[32, 128, 128] 37 inf         0x400 accumulation overflow",
        "  then _softmax (NaN) … loss at step 3",
        "next  opscope repro runs/demo 'blocks.2.attn:bmm#1' -o case",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_fits_the_terminal(finding: Finding, tmp_path: Path, width: int) -> None:
    lines = drawn(document(finding), tmp_path, width=width)
    assert cell_len(lines[0].splitlines()[0]) <= max(
        width, len("opscope  6 steps, 907 calls a step, 1 rank")
    )
    tensors = [text for text in lines if text.startswith(("  in", "  out", "      "))]
    assert max(map(cell_len, tensors)) <= width
    assert sum("f16" in text for text in tensors) == (3 if width < 70 else 2)


def test_wide_characters_keep_the_columns(finding: Finding, tmp_path: Path) -> None:
    first = msgspec.structs.replace(finding.inputs[0], tensor_name="注意力.权重")
    lines = drawn(
        document(msgspec.structs.replace(finding, inputs=(first, finding.inputs[1]))),
        tmp_path,
        width=120,
    )
    inside, outside = (text for text in lines if text.startswith(("  in", "  out")))
    assert cell_len(inside[: inside.index("f16[32, 64")]) == cell_len(
        outside[: outside.index("0x400")]
    )


@pytest.mark.parametrize(
    ("summary", "complete", "line"),
    [
        ({}, True, "6 steps, 907 calls a step, 1 rank"),
        ({"steps": 100, "steps_seen": 300}, True, "100 of 300 steps, 907 calls a step, 1 rank"),
        ({"steps": 6, "steps_seen": 6}, True, "6 steps, 907 calls a step, 1 rank"),
        ({"overhead": None, "steps": 1}, True, "1 step, 907 calls a step, 1 rank"),
        (
            {"ranks": [0, 1], "overhead": None},
            False,
            "6 steps, 907 calls a step, 2 ranks, in what could be read",
        ),
    ],
)
def test_a_clean_run_is_one_line(
    tmp_path: Path, summary: dict[str, Any], complete: bool, line: str
) -> None:
    clean = msgspec.structs.replace(document(**summary), complete=complete)
    (only,) = drawn(clean, tmp_path, width=160)
    assert (
        only.rstrip().removesuffix("runs/demo").rstrip()
        == f"opscope  no overflow, NaN or Inf in {line}"
    )


def test_what_compilation_hid_is_not_called_sound(tmp_path: Path) -> None:
    (only,) = drawn(document(overhead=None, hidden_calls=12), tmp_path, width=160)
    said = (
        "no overflow, NaN or Inf seen in 6 steps, 907 calls a step, 1 rank; 12 calls hidden by "
        "compilation were not looked at"
    )
    assert only.rstrip().removesuffix("runs/demo").rstrip() == f"opscope  {said}"


def test_a_run_of_which_all_was_hidden_says_so(tmp_path: Path) -> None:
    (only,) = drawn(
        document(steps=0, calls_per_step=0.0, ranks=[], overhead=None, hidden_calls=1),
        tmp_path,
        width=160,
    )
    assert "nothing was recorded; 1 call hidden by compilation was not looked at" in only


def test_an_empty_run_is_not_called_clean(tmp_path: Path) -> None:
    nothing = document(steps=0, calls_per_step=0.0, ranks=[], overhead=None)
    assert drawn(nothing, tmp_path)[0].split("  ")[:2] == ["opscope", "nothing was recorded"]


def test_every_line_fits_a_terminal(finding: Finding, tmp_path: Path) -> None:
    clean = msgspec.structs.replace(document(hidden_calls=120), complete=False)
    other = msgspec.structs.replace(
        finding, call="model.layers.0.self_attn.q_proj:native_layer_norm_backward~bwd#1"
    )
    for shown in (clean, document(finding, other)):
        assert max(map(cell_len, drawn(shown, tmp_path, width=80))) <= 80


def test_warnings_and_skips_are_said(tmp_path: Path) -> None:
    skipped = [
        {"rank": 0, "step": 0, "call": "fc:mm~bwd#1", "op": "aten::mm.default", "source": None}
    ]
    lines = drawn(document(warnings=["values near the limit"], skipped_steps=skipped), tmp_path)
    assert lines[-2:] == [
        "skipped  1 step by GradScaler on purpose, the first 0: aten::mm fc:mm~bwd#1",
        "warning  values near the limit",
    ]


def test_a_backward_origin_names_its_forward_call(
    finding: Finding, tmp_path: Path, program: Path
) -> None:
    forward = Forward(call="head:sqrt#1", op="aten::sqrt.default", source=f"{program}:41")
    found = msgspec.structs.replace(
        finding,
        phase="backward",
        source=None,
        forward=forward,
        status=None,
        reasons=(),
        confidence="likely",
    )
    lines = drawn(document(found, ranks=[0, 1]), tmp_path)
    assert lines[1] == "first Inf  rank 0  step 3  aten::bmm  backward  blocks.2.attn  likely"
    assert lines[2:4] == [
        "  train.py:41   scores = q @ k.transpose(-1, -2)",
        "  gradient of aten::sqrt  head:sqrt#1",
    ]


@pytest.mark.parametrize(
    ("evidence", "line"),
    [
        ({"hidden_by": "net:where#2"}, "  then hidden by where"),
        (
            {"reached": "parameter", "reached_at": {"step": 4}, "path": ["a:log#1"]},
            "  then parameter at step 4",
        ),
        (
            {
                "reached": "loss",
                "path": ["a:log#1", "a:mul~bwd#1", "Default/x/Add-op3"],
                "nan_at": "Default/x/Add-op3",
            },
            "  then mul bwd, Default/x/Add-op3 (NaN), loss at step 3",
        ),
        (
            {"reached": "loss", "path": [f"a:{name}#1" for name in "lbcdef"], "nan_at": "a:d#1"},
            "  then b … d (NaN) … loss at step 3",
        ),
        ({"reached": None}, None),
    ],
)
def test_what_became_of_it(
    finding: Finding, tmp_path: Path, evidence: dict[str, Any], line: str | None
) -> None:
    lines = drawn(document(msgspec.structs.replace(finding, evidence=(evidence,))), tmp_path)
    assert [text for text in lines if text.startswith("  then")] == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": None, "outputs": (slot("0", "float32", (1,), nan=2),)}, "first NaN"),
        ({"status": None, "outputs": (slot("0", "float32", (1,), neg_inf=2),)}, "first Inf"),
        ({"evidence": ({"arrived": True},)}, "first unsound input"),
        ({"kind": "gradient-explosion"}, "first gradient explosion"),
    ],
)
def test_what_it_is_called(
    finding: Finding, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert drawn(document(msgspec.structs.replace(finding, **changes)), tmp_path)[1].startswith(
        f"{words}  step 3"
    )


def test_further_findings_are_one_line_each(finding: Finding, tmp_path: Path) -> None:
    others = [
        msgspec.structs.replace(finding, call=f"a:log#{number}", op="aten::log.default", step=5)
        for number in range(6)
    ]
    lines = drawn(document(finding, *others), tmp_path)
    assert lines[6] == "also  overflow  step 5  aten::log  a:log#0  train.py:41"
    assert lines[10] == "also  2 more: opscope scan --json runs/demo"


def test_many_tensors_are_counted_and_the_unsound_ones_come_first(
    finding: Finding, tmp_path: Path
) -> None:
    many = tuple(
        slot(f"0.{number}", "float32", (number,), min=0.0, max=1.0, nan=int(number == 9))
        for number in range(12)
    )
    text = "\n".join(drawn(document(msgspec.structs.replace(finding, inputs=many)), tmp_path))
    assert "f32[9] 1 nan" in text
    assert "… 6 more" in text


HOSTILE = "a'; rm -rf ~ #\x1b[31m\n[bold]x[/bold]\u202e"


def test_text_of_a_run_is_never_obeyed(finding: Finding, tmp_path: Path) -> None:
    """A name may hold terminal codes, markup of rich, line breaks, right-to-left marks and shell
    syntax.
    """
    found = msgspec.structs.replace(
        finding, call=HOSTILE, module=HOSTILE, op=HOSTILE, source=f"{HOSTILE}:3", reasons=(HOSTILE,)
    )
    file = io.StringIO()
    console = Console(file=file, width=80)
    for text in verdict_lines(document(found, warnings=[HOSTILE]), width=80, here=tmp_path):
        console.print(text, soft_wrap=True)
    said = file.getvalue()
    assert not any(ord(character) < 32 for character in said.replace("\n", ""))
    assert "\u202e" not in said
    assert "[bold]x[/bold]" in said
    (command,) = [line for line in said.splitlines() if line.startswith("next")]
    words = shlex.split(command.removeprefix("next  "))
    assert words[:3] == ["opscope", "repro", "runs/demo"]
    assert words[4:] == ["-o", "case"]


def test_only_regular_python_files_are_read(finding: Finding, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0\n")
    for source in (
        f"{tmp_path}/secret:1",
        "/dev/zero:1",
        f"{tmp_path}:1",
        f"{tmp_path}/gone.py:1",
        f"{tmp_path}/train.py:9999999",
        "nonsense",
    ):
        lines = drawn(document(msgspec.structs.replace(finding, source=source)), tmp_path)
        assert "root:x" not in "\n".join(lines)
        assert lines[2] == f"  {source.replace(f'{tmp_path}/', '')}" or lines[2].startswith("  …/")


def test_no_colour_outside_a_terminal(finding: Finding, capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(document(finding))
    print_verdict(document(finding), stderr=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err
    assert "\x1b" not in captured.out


@pytest.mark.parametrize(
    ("kind", "evidence", "verb"),
    [
        ("replay-mismatch", (), "repro"),
        ("crash", ({"inputs_kept": True},), "repro"),
        ("crash", ({"signal": 6},), "run --journal aten::bmm.default"),
        ("crash", ({"exit_code": 1, "asynchronous": True},), "run --sync --"),
        ("nondeterminism", (), "show"),
    ],
)
def test_a_call_whose_inputs_were_kept_is_cut_out_next(
    finding: Finding, kind: str, evidence: tuple[dict[str, Any], ...], verb: str, tmp_path: Path
) -> None:
    said = drawn(document(msgspec.structs.replace(finding, kind=kind, evidence=evidence)), tmp_path)
    assert said[-1].startswith(f"next  opscope {verb} ")


def test_what_was_checked_and_moved_is_told(finding: Finding, tmp_path: Path) -> None:
    facts = {
        "calls": 4810,
        "checked": 580,
        "signatures": 116,
        "seconds": 3.44,
        "unjudged": {"mylib::scale.default": {"calls": 2}},
    }
    moved = {"calls": {"aten::native_group_norm.default": 3}, "refused": {}}
    said = drawn(document(finding, checked={"0": facts}, substituted={"0": moved}), tmp_path)
    assert "checked  580 of 4810 calls, 116 signatures, 3.4 s; not judged: mylib::scale" in said
    assert "moved  aten::native_group_norm 3 calls" in said
    nothing = {"calls": 0, "checked": 0, "signatures": 0, "seconds": 0.0, "unjudged": {}}
    assert "checked  0 of 0 calls, 0.0 s" in drawn(
        document(finding, checked={"0": nothing}), tmp_path
    )


def test_a_budget_that_first_checks_exceeded_is_told(finding: Finding, tmp_path: Path) -> None:
    facts = {
        "calls": 600,
        "checked": 580,
        "signatures": 116,
        "seconds": 3.4,
        "sampling": 0.3,
        "recording": 0.9,
        "budget": "20%",
    }
    said = drawn(
        document(finding, checked={"0": {**facts, "beyond": 0.0}, "1": {**facts, "beyond": 2.26}}),
        tmp_path,
    )
    assert "budget   20% exceeded by 2.3 s: first checks 3.1 s, recording 0.9 s" in said
    assert not any(
        text.startswith("budget")
        for text in drawn(document(finding, checked={"0": {**facts, "beyond": 0.01}}), tmp_path)
    )


def test_guarded_origins_are_counted_unless_they_are_listed(
    finding: Finding, tmp_path: Path
) -> None:
    guarded = msgspec.structs.replace(
        finding, evidence=({"reached": None, "hidden_by": "net:where#2", "guarded": True},)
    )
    told = "guarded  1 origin that the program removes itself: opscope scan --show-hidden runs/demo"
    assert drawn(document(hidden=1), tmp_path, width=160)[-1] == told
    assert told not in drawn(document(guarded, hidden=1), tmp_path, width=160)


def test_of_a_record_without_tensors_no_case_is_proposed(finding: Finding) -> None:
    """An overflow record whose operator was not dumped: there is nothing to run again."""
    lone = msgspec.structs.replace(
        finding,
        inputs=(),
        outputs=(),
        op="Opdebug",
        call="Opdebug.AI Core.57.563",
        evidence=(),
        source=None,
    )
    text = "\n".join(line.plain for line in verdict_lines(document(lone), width=80, here=Path("/")))
    assert "next  opscope show runs/demo 'Opdebug.AI Core.57.563'" in text
    assert "repro" not in text


def test_what_a_device_did_not_keep_a_second_run_does(finding: Finding) -> None:
    assert keeping_command(finding) is None
    unkept = msgspec.structs.replace(finding, step=3, evidence=({"unkept": ["0"]},))
    command = f"opscope run --steps 3 --ops {finding.op} --values full -- CMD"
    assert keeping_command(unkept) == command
    lines = verdict_lines(document(unkept), width=160, here=Path("/"))
    assert any(line.plain.startswith(f"or    {command}") for line in lines)
    graph = msgspec.structs.replace(unkept, op="compiled::graph_0_0")
    assert keeping_command(graph) is None


def test_a_graph_that_cannot_be_cut_out_is_shown_next(finding: Finding) -> None:
    graph = msgspec.structs.replace(finding, op="compiled::graph_0_0", call="<root>:graph_0_0#1")
    assert next_command(graph, "run") == "opscope show run '<root>:graph_0_0#1'"
    assert next_command(finding, "run") == "opscope repro run 'blocks.2.attn:bmm#1' -o case"
