# SPDX-License-Identifier: Apache-2.0
"""Fixtures of these tests."""

from __future__ import annotations

from tests.lasting import lasting, one_process

__all__ = ["lasting", "one_process"]
