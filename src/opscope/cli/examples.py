# SPDX-License-Identifier: Apache-2.0
"""What people type: examples of every verb, for its help and the man page."""

from __future__ import annotations

# Verb -> what is typed after `opscope`, and what that does.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("run -- python train.py", "record it all, and say what broke"),
        ("run --steps 0-20 --stop-after -o runs/x -- python train.py", "the first steps only"),
        ("run --check -- torchrun --nproc-per-node 2 train.py", "look for wrong kernels, too"),
    ),
    "merge": (
        ("merge node0 node1 -o runs/x", "one run of what two nodes recorded, to be scanned"),
        ("merge nodes/a nodes/b nodes/c -o runs/x", "a part that comes late is added"),
    ),
    "scan": (
        ("scan runs/x", "the verdict of a run"),
        ("scan runs/x --annotate -o opscope.sarif", "in continuous integration"),
        ("scan runs/x --executor processes:8", "a job of many ranks, by eight workers"),
    ),
    "compare": (
        ("compare runs/npu runs/cpu", "where a run parts from one that is trusted"),
        ("compare dump_new dump_old -o rows.xlsx", "every row of two dumps, for a spreadsheet"),
    ),
    "replay": (
        ("replay runs/x --limit 200", "recorded calls again, judged against substitutes"),
        ("replay runs/x --ops '*softmax*' --repeat 10", "does an operator answer the same?"),
    ),
    "check-op": (
        ("check-op aten::gelu --dtype bfloat16", "one operator, one type"),
        ("check-op --all --resume swept.jsonl", "all of them; goes on where it was stopped"),
    ),
    "repro": (
        ("repro runs/x -o case", "the call of the first finding, as a folder"),
        ("repro runs/x 'blocks.0.attn:bmm#1' --dtype float64", "does it fail in float64, too?"),
    ),
    "minimize": (
        ("minimize case", "the smallest that fails in the same way"),
        ("minimize case -o small --budget 60", "in a minute, into a folder of this name"),
    ),
    "bisect": (
        ("bisect -- python train.py", "which operators make it fail"),
        ("bisect --between runs/bad runs/good -- python train.py", "which setting does"),
        ("bisect --compile -- python train.py", "what torch.compile makes that does"),
    ),
    "convert": (
        ("convert dump -o arrays --type npy", "any known dump as plain files"),
        ("convert runs/x -o tree --type msprobe", "a run as another tool lays it out"),
    ),
    "aicore": (
        ("aicore ~/ascend/log -o case", "what failed on the device, and a case of it"),
        ("aicore --code 507015", "what an error code means"),
    ),
    "prepare": (
        ('prepare mindspore "nan at step 10" --path /data/dump', "settings for a purpose"),
        ("prepare mindspore --verify data_dump.json", "check what somebody wrote"),
    ),
    "show": (
        ("show runs/x 'blocks.0.attn:bmm#1' --values", "one call, with elements"),
        ("show runs/x --source train.py:25 --steps 5", "what a line of code ran"),
    ),
    "query": (
        ('query runs/x "select op, count(*) from calls group by 1"', "what ran how often"),
        ('query runs/x "select * from tensors where nan > 0" --csv', "every tensor with NaN"),
    ),
    "report": (
        ("report runs/x -o report.html", "a page to attach to an issue"),
        ("report runs/x -o verdict.md", "the text of that issue; .svg: its picture"),
        ("report runs/npu runs/cpu -o two.html --redact paths", "of two runs, to give away"),
    ),
    "serve": (
        ("serve runs/x", "the page over all calls, while they are recorded, too"),
        ("serve runs/a runs/b --port 9000 --open", "two runs, and a browser"),
    ),
    "watch": (
        ("watch runs/x", "one line, until the recording is over"),
        ("watch runs/x --every 60 >> progress.txt", "a line a minute, where it has grown"),
    ),
    "tour": (
        ("tour", "five minutes, offline, without torch"),
        ("tour -o example", "the same, in a folder of this name"),
    ),
    "explain": (
        ("explain overflow-origin", "a kind of finding, and what to do next"),
        ("explain 0x420", "the bits of an overflow status"),
    ),
    "completion": (
        ("completion bash > ~/.local/share/bash-completion/completions/opscope", "bash"),
        ("completion zsh > ~/.zfunc/_opscope", "zsh; the folder is one of $fpath"),
        ("completion fish > ~/.config/fish/completions/opscope.fish", "fish"),
        ("completion man > ~/.local/share/man/man1/opscope.1", "for man opscope"),
    ),
    "doctor": (
        ("doctor", "versions and devices, and what is missing"),
        ("doctor --json", "the same for a bug report or a script"),
    ),
}


def examples_of(verb: str) -> str:
    """The examples of a verb as its help ends with them: what a line does, and the line to type."""
    lines = [f"  # {does}\n  opscope {typed}" for typed, does in EXAMPLES[verb]]
    return "Examples:\n" + "\n".join(lines)
