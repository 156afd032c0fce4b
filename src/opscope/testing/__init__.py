# SPDX-License-Identifier: Apache-2.0
"""What others can hold their extensions of opscope against, and tests of models their runs."""

from __future__ import annotations

from opscope.testing.formats import FormatTests
from opscope.testing.matches import assert_matches

__all__ = ["FormatTests", "assert_matches"]
