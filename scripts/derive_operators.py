# SPDX-License-Identifier: Apache-2.0
"""Writes what the installed torch tells of its operators by itself, for words that no sheet of the
catalogue has.

python scripts/derive_operators.py > src/opscope/operators/data/torch.txt
"""

from __future__ import annotations

from opscope.record.torch.operator_facts import derived_sheet

if __name__ == "__main__":
    print(derived_sheet(), end="")
