# SPDX-License-Identifier: Apache-2.0
"""Every call of the recorder and the store that may fail fails once, and the program is killed at
any moment: it is never harmed, and no verdict is false. A sample in the ordinary tests, the whole
by `make attack`.
"""

from __future__ import annotations

import errno
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import opscope
from tests.attack.trials import Bench, Trial, compiler, content, harm, harm_before_its_end, wrongs

Fault = tuple[str, int, int, int]
SHORT = -1
ERRORS = {
    "open": (errno.ENOSPC, errno.EMFILE, errno.EACCES, errno.EINTR),
    "write": (errno.ENOSPC, errno.EIO, errno.EINTR, SHORT),
    "rename": (errno.EIO, errno.EACCES),
    "mkdir": (errno.ENOSPC, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES),
    "truncate": (errno.EIO, errno.EINTR),
    "allocate": (errno.ENOSPC, errno.EINTR),
}
MANY = 150  # writes; of the later ones, which are those of the black box by far, every fortieth
APART = 40
FEW_KILLS, KILLS = 8, 300
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="the shim that plants faults needs a C compiler"
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("trials"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def bare(bench: Bench) -> Trial:
    return bench.bare()


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> Trial:
    return bench.trial()


@pytest.fixture(scope="module")
def whole(undisturbed: Trial) -> Counter[tuple[Any, ...]]:
    return content(undisturbed.run)


def every(counts: dict[str, int]) -> Iterator[Fault]:
    for name, count in counts.items():
        for n in (*range(1, min(count, MANY) + 1), *range(MANY + APART, count + 1, APART)):
            for error in ERRORS[name]:
                yield name, n, error, 0


def complaints(
    trial: Trial, fault: Fault, bare: Trial, whole: Counter[tuple[Any, ...]]
) -> list[str]:
    return [f"{fault}: {line}" for line in (*harm(trial, bare), *wrongs(trial, whole))]


def test_undisturbed(bare: Trial, undisturbed: Trial, whole: Counter[tuple[Any, ...]]) -> None:
    """The trial itself is sound: the calls are counted, the run is complete, and says nothing."""
    assert (harm(undisturbed, bare), wrongs(undisturbed, whole), undisturbed.said()) == ([], [], [])
    assert all(undisturbed.counts[name] for name in ERRORS)
    assert len(whole) > 100


@pytest.mark.parametrize(
    "fault",
    [
        ("mkdir", 2, errno.ENOSPC, 0),
        ("open", 1, errno.EACCES, 0),
        ("open", 4, errno.EMFILE, 0),
        ("open", 9, errno.ENOSPC, 0),
        ("allocate", 1, errno.ENOSPC, 0),
        ("rename", 2, errno.EIO, 0),
        ("unlink", 1, errno.EIO, 0),
        ("truncate", 2, errno.EIO, 0),
        ("write", 2, errno.ENOSPC, 0),
        ("write", 30, SHORT, 0),
        ("write", 60, errno.EIO, 0),
        ("write", 90, errno.EINTR, 0),
    ],
)
def test_a_call_that_fails(
    bench: Bench, bare: Trial, whole: Counter[tuple[Any, ...]], fault: Fault
) -> None:
    assert complaints(bench.trial(fault), fault, bare, whole) == []


@pytest.mark.zoo
def test_a_slow_disk_is_said(
    bench: Bench, bare: Trial, undisturbed: Trial, whole: Counter[tuple[Any, ...]]
) -> None:
    """Every write takes 50 ms: the black box is given up, the run is whole, and says how long the
    program waited.
    """
    trial = bench.trial(("write", 0, 0, 50_000))
    assert (harm(trial, bare), wrongs(trial, whole)) == ([], [])
    document = opscope.scan(opscope.open_run(trial.run))
    assert document.complete
    assert [line for line in document.summary["warnings"] if "s for the disk" in line]
    assert trial.counts["write"] < undisturbed.counts["write"] / 2


@pytest.mark.attack
def test_every_call_fails_once(
    bench: Bench, bare: Trial, undisturbed: Trial, whole: Counter[tuple[Any, ...]]
) -> None:
    told = [
        line
        for fault in every(undisturbed.counts)
        for line in complaints(bench.trial(fault), fault, bare, whole)
    ]
    assert told == [], f"{len(told)} complaints"


@pytest.mark.parametrize(
    "kills",
    [pytest.param(FEW_KILLS, marks=pytest.mark.zoo), pytest.param(KILLS, marks=pytest.mark.attack)],
)
def test_killed_at_random_moments(
    bench: Bench, bare: Trial, whole: Counter[tuple[Any, ...]], kills: int
) -> None:
    """Completeness is the writer's own word: who was killed before it had closed its files is not
    complete, whatever is missing.
    """
    begun = time.monotonic()
    bench.trial()
    lasts = time.monotonic() - begun
    drawn = random.Random(14)
    told = []
    for _ in range(kills):
        moment = drawn.uniform(0, lasts)
        trial = bench.trial(kill=moment)
        told += [
            f"killed after {moment:.3f} s: {line}"
            for line in (*harm_before_its_end(trial, bare), *wrongs(trial, whole))
        ]
    assert told == [], f"{len(told)} complaints"
