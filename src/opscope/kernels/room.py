# SPDX-License-Identifier: Apache-2.0
"""Room for opscope's own code in a thread of the program: frames where it is near its limit of
recursion, and no tracer that follows.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

NONE = SimpleNamespace(enter_room=tuple, leave_room=tuple)


def find_room() -> Any:
    """What has enter_room() and leave_room(), which do nothing without the compiled recorder.

    Both are functions in C: no signal handler of the program can run, and raise, between one of
    them and the code that it begins or ends.
    """
    return sys.modules.get("opscope.kernels._recorder", NONE)
