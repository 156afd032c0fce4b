# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: hypothesis tries the same examples each time and never minds how long one took; Ctrl-C works.

`OPSCOPE_TEST_PROFILE=search make test` looks for new ones instead.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("same", derandomize=True, **QUIET)
settings.register_profile("search", **QUIET)
settings.load_profile(os.environ.get("OPSCOPE_TEST_PROFILE", "same"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job that a shell started in the background ignores it, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
