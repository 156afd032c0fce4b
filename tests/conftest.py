# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: hypothesis tries the same examples each time and never minds how long
one took; Ctrl-C works; of a test of the zoo with many cases --share N leaves each N-th.

`OPSCOPE_TEST_PROFILE=search make test` looks for new ones instead.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("same", derandomize=True, **QUIET)
settings.register_profile("search", **QUIET)
settings.load_profile(os.environ.get("OPSCOPE_TEST_PROFILE", "same"))

# A job that a shell started in the background, or that is to outlive it, ignores these, and so
# would the commands that tests end.
for ending, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ending) is signal.SIG_IGN:
        signal.signal(ending, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    share = "of each test of the zoo with several cases, run the first and each N-th after it"
    parser.addoption("--share", type=int, default=1, metavar="N", help=share)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("zoo"):
            cases[item.nodeid.partition("[")[0]].append(item)
    share = config.getoption("--share")
    left_out = {item for each in cases.values() for at, item in enumerate(each) if at % share}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


FROZEN = pytest.StashKey[int]()  # how many modules there were when last all was frozen


@pytest.fixture(autouse=True)
def _imported_to_stay(pytestconfig: pytest.Config) -> None:
    """A recording looks for optimizers among all objects that are tracked: without this, in every
    test, among those of all that any test imported.
    """
    if pytestconfig.stash.get(FROZEN, 0) != len(sys.modules):
        pytestconfig.stash[FROZEN] = len(sys.modules)
        gc.collect()
        gc.freeze()
