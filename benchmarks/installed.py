# SPDX-License-Identifier: Apache-2.0
"""How whole processes are started to be timed: as an installed program is."""

from __future__ import annotations

import os


def installed() -> dict[str, str]:
    """The environment, in which imported modules are kept in bytecode whatever it says."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
