# SPDX-License-Identifier: Apache-2.0
"""One call of a run -> a folder that stands alone, executed and judged.

write cuts a call out, execute runs the folder in a fresh process. The steps between are public too,
for tools that change a
case before it is written: build (run and call -> material), save (material -> folder), read_case
(folder -> case).
"""

from opscope.repro.build import Material, build
from opscope.repro.case import Case, read_case
from opscope.repro.runner import Outcome, execute
from opscope.repro.write import Repro, save, write

__all__ = ["Case", "Material", "Outcome", "Repro", "build", "execute", "read_case", "save", "write"]
