# SPDX-License-Identifier: Apache-2.0
"""`python -m opscope` is `opscope`."""

import sys

from opscope.cli import main

sys.exit(main())
