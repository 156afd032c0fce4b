# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, a recorded program leaves a run that can be read and that never says it is whole."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.attack.trials import Bench, compiler, content, wrongs

FEW, MANY = 8, 300
pytestmark = pytest.mark.skipif(compiler() is None, reason="the shim that plants faults needs a C compiler")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("kills"))
    yield made
    made.close()


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=pytest.mark.attack)])
def test_killed_at_random_moments(bench: Bench, moments: int) -> None:
    """Completeness is the writer's own word: who was killed before it had closed its files is not complete, whatever is missing."""
    whole = content(bench.trial().run)
    begun = time.monotonic()
    bench.trial()
    lasts = time.monotonic() - begun
    drawn = random.Random(14)
    told = []
    for _ in range(moments):
        trial = bench.trial(kill=drawn.uniform(0, lasts))
        told += wrongs(trial, whole)
    assert told == []
