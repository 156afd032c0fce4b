# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx: MyST pages, Furo, nothing fetched from a network."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(SOURCE), str(HERE.parent / "scripts")]

from reference import write  # noqa: E402 - the paths come first

write(HERE / "generated")

project = "opscope"
author = "the opscope authors"
copyright = author
release = re.findall(
    r'^VERSION = "(.+)"$',
    (SOURCE / "opscope" / "version.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)[0]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
nitpicky = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]

autodoc_mock_imports = ["torch"]  # the pages need no framework
autodoc_typehints = "description"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"opscope {release}"
html_show_sphinx = False
