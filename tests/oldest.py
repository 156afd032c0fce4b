# SPDX-License-Identifier: Apache-2.0
"""The oldest torch that opscope records (docs/floors.md): a test of what it lacks, or does
otherwise by itself, is skipped there and says why.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

OLDEST = (2, 4)
IS_OLDEST = tuple(int(part) for part in torch.__version__.split(".")[:2]) <= OLDEST
COMPILES_AGAIN = "below any dispatch mode it compiles again what it has compiled"


def not_in_oldest(reason: str) -> pytest.MarkDecorator:
    """A mark of tests and parameters."""
    return pytest.mark.skipif(IS_OLDEST, reason=f"torch 2.4: {reason}")
