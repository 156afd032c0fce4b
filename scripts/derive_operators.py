# SPDX-License-Identifier: Apache-2.0
"""Writes what the installed torch tells of its operators by itself: traits of words that no sheet
of the catalogue has, or the names of their arguments.

python scripts/derive_operators.py > src/opscope/operators/data/torch.txt
python scripts/derive_operators.py --arguments > src/opscope/operators/data/arguments/aten.txt
"""

from __future__ import annotations

import sys

from opscope.record.torch.operator_facts import argument_sheet, derived_sheet

if __name__ == "__main__":
    print(argument_sheet() if "--arguments" in sys.argv else derived_sheet(), end="")
