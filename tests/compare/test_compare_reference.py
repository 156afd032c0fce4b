# SPDX-License-Identifier: Apache-2.0
"""A third run of higher precision decides whether target or golden is the side that is off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.compare.dumped import dump

from opscope.compare.api import Policy, compare
from opscope.compare.tell.comparison import Comparison
from opscope.formats.registry import open_run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 32))
TRUE = {"relu": np.maximum(X, 0), "exp": np.exp(np.maximum(X, 0))}


def noisy(off: float, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """The true chain in float32 with an error of the second call."""
    noise = 1 + off * np.random.default_rng(seed).standard_normal(X.shape)
    return {
        "relu": TRUE["relu"].astype(np.float32),
        "exp": (TRUE["exp"] * noise).astype(np.float32),
    }


def asked(tmp_path: Path, target: float, golden: float, *, reference: bool = True) -> Comparison:
    feed = X.astype(np.float32)
    sides = (
        dump(tmp_path / "t", noisy(target, 1), feed),
        dump(tmp_path / "g", noisy(golden, 2), feed),
    )
    third = open_run(dump(tmp_path / "r", TRUE, X)) if reference else None
    return compare(*sides, Policy(reference=third))


def test_without_a_reference_the_difference_is_a_finding(tmp_path: Path) -> None:
    found = asked(tmp_path, 1e-2, 1e-2, reference=False)
    assert [finding.op for finding in found.findings] == ["Functional.exp"]


def test_a_difference_no_larger_than_goldens_own_error_is_cleared(tmp_path: Path) -> None:
    found = asked(tmp_path, 1e-2, 1e-2)
    assert found.findings == ()
    assert found.document.verdict == "clean"
    assert any(
        "no more than golden itself errs" in warning
        for warning in found.document.summary["warnings"]
    )


def test_a_target_that_is_off_stays_found_and_the_reference_speaks(tmp_path: Path) -> None:
    found = asked(tmp_path, 5e-2, 1e-4)
    assert [finding.op for finding in found.findings] == ["Functional.exp"]
    assert "against the reference" in found.findings[0].reasons[-1]
    assert "golden is off" not in " ".join(found.findings[0].reasons)


def test_where_golden_is_the_side_that_is_off_nothing_is_laid_on_the_target(tmp_path: Path) -> None:
    found = asked(tmp_path, 1e-6, 5e-2)
    assert found.findings == ()
    assert any(
        "golden is the side that is off" in warning
        for warning in found.document.summary["warnings"]
    )


def test_a_reference_without_values_decides_nothing(tmp_path: Path) -> None:
    feed = X.astype(np.float32)
    sides = dump(tmp_path / "t", noisy(1e-2, 1), feed), dump(tmp_path / "g", noisy(1e-2, 2), feed)
    bare = dump(tmp_path / "r", TRUE, X)
    for path in bare.rglob("*.npy"):
        path.unlink()
    found = compare(*sides, Policy(reference=open_run(bare)))
    assert [finding.op for finding in found.findings] == ["Functional.exp"]
    assert any(
        "cannot be judged by the reference" in warning
        for warning in found.document.summary["warnings"]
    )


def by_statistics(tmp_path: Path, target: float, golden: float) -> Comparison:
    """The same of dumps that lost their values and have statistics."""
    feed = X.astype(np.float32)
    runs = {"t": (noisy(target, 1), feed), "g": (noisy(golden, 2), feed), "r": (TRUE, X)}
    places = [dump(tmp_path / name, *what, statistics=True) for name, what in runs.items()]
    for path in tmp_path.rglob("*.npy"):
        path.unlink()
    return compare(places[0], places[1], Policy(reference=open_run(places[2])))


def test_statistics_decide_where_there_are_no_values(tmp_path: Path) -> None:
    cleared = by_statistics(tmp_path / "alike", 1e-2, 1e-2)
    assert cleared.findings == ()
    found = by_statistics(tmp_path / "off", 0.2, 1e-5)
    assert [finding.op for finding in found.findings] == ["Functional.exp"]
    assert "by statistics alone" in found.findings[0].reasons[-1]
    for comparison in (cleared, found):
        assert any(
            "judged 1 finding by statistics alone" in warning
            for warning in comparison.document.summary["warnings"]
        )
