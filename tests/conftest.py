# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: hypothesis tries the same examples each time and never minds how long
one took; Ctrl-C works.

`OPSCOPE_TEST_PROFILE=search make test` looks for new ones instead.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

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
