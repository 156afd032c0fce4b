# SPDX-License-Identifier: Apache-2.0
"""What others can hold their extensions of opscope against."""

from __future__ import annotations

from opscope.testing.formats import FormatTests

__all__ = ["FormatTests"]
