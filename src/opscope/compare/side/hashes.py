# SPDX-License-Identifier: Apache-2.0
"""Hashes of columns by the name that compare has for them; they are opscope.run.hashes."""

from opscope.run.hashes import *  # noqa: F403 - goes with the last import of this name
