# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.errors import UsageError
from opscope.record.config import (
    OPTIONS,
    RecordConfig,
    config_from,
    parse_options,
    read_words,
    split_command,
)
from opscope.run.selection import parse_selection


def test_nothing_asked_is_the_defaults() -> None:
    config = parse_options("")
    assert config == RecordConfig()
    assert config.values == "anomaly"
    assert config.levels == ("operator", "module")
    assert config.keep_last == 100
    assert config.to_options() == ""


def test_every_option_is_read() -> None:
    config = parse_options(
        "-o 'runs/我的 run' --tag t --values sample --sample 4 --steps '0|5-8' --ranks 0,7 "
        "--ops 'mm,name-regex(a,b)' --skip=add"
        " --phases forward,backward --io output --levels api,operator --keep all "
        "--on-overflow stop --stop-after"
        " --step-module model.net --seed 7 --deterministic --sync"
    )
    assert config == RecordConfig(
        output="runs/我的 run",
        tag="t",
        values="sample",
        sample=4,
        selection=parse_selection(
            steps="0|5-8",
            ranks="0,7",
            ops="mm,name-regex(a,b)",
            skip="add",
            phases="forward,backward",
            io="output",
        ),
        levels=("operator", "api"),
        keep="all",
        on_overflow="stop",
        stop_after=True,
        step_module="model.net",
        seed=7,
        deterministic=True,
        sync=True,
    )
    assert config.keep_last is None
    assert parse_options(config.to_options()) == config


def test_the_words_may_come_as_arguments() -> None:
    assert parse_options(["--steps", "3", "--ops=a=b"]) == parse_options("--steps=3 --ops 'a=b'")


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
ranges = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 99)), min_size=1, max_size=4
).map(lambda pairs: "|".join(f"{first}-{min(first + more, 2**31 - 1)}" for first, more in pairs))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "output": texts,
            "tag": texts,
            "values": st.sampled_from(["none", "anomaly", "sample", "full"]),
            "sample": st.integers(1, 2**32 - 1).map(str),
            "steps": ranges,
            "ranks": ranges,
            "io": st.sampled_from(["input", "output", "both"]),
            "keep": st.one_of(st.just("all"), st.integers(1, 10**9 - 1).map("last:{}".format)),
            "seed": st.integers(0, 2**32 - 1).map(str),
            "stop_after": st.booleans(),
            "deterministic": st.booleans(),
            "sync": st.booleans(),
        },
    )
)
def test_options_survive_the_environment(words: dict[str, str | bool]) -> None:
    config = config_from(words)
    assert parse_options(config.to_options()) == config
    assert config_from(config.words()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--step 3", "unknown option --step; did you mean --steps?"),
        ("--zzz", "unknown option --zzz"),
        ("python", "'python' is not an option"),
        ("--steps", "--steps needs a value: --steps STEPS"),
        ("--sync=1", "--sync takes no value, '1' was given"),
        ("--values all", "--values 'all': not one of none, anomaly, overflow, sample, full"),
        ("--sample 0", "--sample '0': not a whole number from 1 to 4294967295"),
        ("--seed -1", "--seed '-1': not a whole number from 0 to 4294967295"),
        ("--keep last", "--keep 'last': write last:N with N at least 1, or all"),
        ("--keep last:0", "--keep 'last:0': write last:N with N at least 1, or all"),
        ("--levels kernel", "levels 'kernel': 'kernel' is not one of operator, api, module, graph"),
        ("--steps 8-5", "steps '8-5': the range '8-5' runs backwards or is too large"),
        ("--tag 'x", 'OPSCOPE "--tag \'x": No closing quotation'),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(options: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_options(options)
    assert str(caught.value) == message


def test_later_words_win_and_switches_can_be_taken_back() -> None:
    assert config_from(
        read_words("--sync --values full"), read_words("--no-sync --values none")
    ) == parse_options("--values none")
    assert not parse_options("--sync --no-sync").sync


def test_a_file_is_read_first(tmp_path: Path) -> None:
    file = tmp_path / "opscope 设置.toml"
    file.write_text(
        'values = "full"\nsteps = "0|5-8"\nstop-after = true\nseed = 3\nranks = [0, '
        '7]\non_overflow = "stop"\n',
        encoding="utf-8",
    )
    config = parse_options(["--seed", "4", "--config", str(file)])
    assert config == parse_options(
        "--values full --steps '0|5-8' --stop-after --seed 4 --ranks 0,7 --on-overflow stop"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"valeus = 'full'", "unknown option 'valeus'; did you mean values?"),
        (b"config = 'x'", "unknown option 'config'"),
        (b"sync = 'yes'", "sync is 'yes', true or false was expected"),
        (b"values = true", "values is True, text was expected"),
        (b"values = ", "not TOML: "),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.toml") as caught:
        parse_options(f"--config {shlex.quote(str(file))}")
    assert message in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"large\.toml: more than 1 MiB"):
        parse_options(f"--config {path}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--config needs a file that can be read"):
        parse_options(["--config", str(tmp_path / "nothing.toml")])


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        (
            "-o x -- python a.py --lr 3 -- b",
            ["-o", "x"],
            ["python", "a.py", "--lr", "3", "--", "b"],
        ),
        ("-o x python a.py --seed 3", ["-o", "x"], ["python", "a.py", "--seed", "3"]),
        ("--sync --steps=3 python", ["--sync", "--steps=3"], ["python"]),
        ("--json-file x --stop python", ["--json-file", "x", "--stop"], ["python"]),
        ("--help", ["--help"], []),
        ("-o", ["-o"], []),
        ("", [], []),
    ],
)
def test_the_command_starts_at_the_first_word_that_is_no_option(
    line: str, options: list[str], command: list[str]
) -> None:
    assert split_command(line.split(), more=("--json-file",)) == (options, command)


def test_each_option_says_what_it_does() -> None:
    assert all(option.help and option.flags[0].startswith("--") for option in OPTIONS)
    assert {option.field for option in OPTIONS} >= set(RecordConfig.__struct_fields__) - {
        "selection"
    }
