# SPDX-License-Identifier: Apache-2.0
"""`python -m opscope` is `opscope`."""

import os
import sys

if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - as python -m wrote it there
    del sys.path[0]  # nothing is imported from the directory one happens to be in

from opscope.cli import main

sys.exit(main())
