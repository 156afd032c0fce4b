# SPDX-License-Identifier: Apache-2.0
"""Fixtures of these tests."""

from __future__ import annotations

from tests.substitute.test_witness import library

__all__ = ["library"]
