# SPDX-License-Identifier: Apache-2.0
"""The numbers of one process's tables, shared by whoever writes rows into them."""

from __future__ import annotations

import msgspec


class Numbers(msgspec.Struct):
    """The next free number of each kind."""

    index: int = 0
    version: int = 0
    storage: int = 0
    stack: int = 0

    def next_index(self) -> int:
        """A number for a call."""
        self.index += 1
        return self.index - 1

    def next_version(self) -> int:
        """A number for bytes that were not seen before."""
        self.version += 1
        return self.version - 1

    def next_stack(self) -> int:
        """A number for a stack."""
        self.stack += 1
        return self.stack - 1
