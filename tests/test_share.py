# SPDX-License-Identifier: Apache-2.0
"""--share leaves of each test of the zoo its first case, and so many of the others."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def cases(*words: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *words]
    modules = ["tests/zoo/test_wrong_kernels_zoo.py", "tests/compare/test_compare_beside.py"]
    done = subprocess.run([*command, *modules], cwd=ROOT, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.zoo
def test_a_third_of_each_test_of_the_zoo_is_left_and_all_of_the_others() -> None:
    every, third = cases(), cases("--share", "3")
    number, left = (Counter(case.partition("[")[0] for case in some) for some in (every, third))
    of_zoo = {test for test in number if "/zoo/" in test}
    assert all(max(number[test] for test in some) > 3 for some in (of_zoo, number.keys() - of_zoo))
    assert left == {test: ceil(n / 3) if test in of_zoo else n for test, n in number.items()}
    assert every[0] == third[0]
