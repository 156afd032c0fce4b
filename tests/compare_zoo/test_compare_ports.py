# SPDX-License-Identifier: Apache-2.0
"""Ports beside their originals: what was once answered rightly stays so, of a fixed sample of the
pairs; `make zoo-all` asks all, and says what is missed.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.compare_zoo.ports.judge import judged
from tests.compare_zoo.ports.pair import HEALTHY, Pair, known, marked
from tests.compare_zoo.ports.runs import checked, recorded

NAMES = sorted({name.partition("/")[0] for name in known()})
HERE = [pair.name for pair in map(Pair.named, NAMES) if not (pair.needs or pair.framework)]
SAMPLE = random.Random(17).sample(HERE, min(4, len(HERE)))


@pytest.mark.zoo
@pytest.mark.parametrize("name", SAMPLE)
def test_what_was_right_stays_right(name: str, tmp_path: Path) -> None:
    pair = Pair.named(name)
    variants = [one for one in pair.variants if f"{name}/{one}" in known()]
    recorded(pair, tmp_path / "runs", variants)
    checked(pair, tmp_path / "runs", variants)
    answers = [judged(pair, one, tmp_path / "runs") for one in variants]
    assert not [f"{one}: {one.said}" for one in answers if not one.right]


@pytest.mark.parametrize("pair", Pair.all(), ids=lambda pair: pair.name)
def test_every_fault_is_in_the_port_and_marked_in_both(pair: Pair, tmp_path: Path) -> None:
    assert len(pair.faults) >= 5 or not pair.faults  # a port that is only healthy
    for fault in pair.faults:
        port = pair.written(fault, tmp_path / fault)
        assert port.read_text() != pair.written(HEALTHY, tmp_path).read_text()
        assert marked(port, fault, pair.port)
        assert marked(pair.original, fault)


def test_what_is_known_is_there() -> None:
    there = {f"{pair.name}/{variant}" for pair in Pair.all() for variant in pair.variants}
    assert set(known()) <= there
