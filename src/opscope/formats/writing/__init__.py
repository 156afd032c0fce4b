# SPDX-License-Identifier: Apache-2.0
"""Writers: a run to plain array files, to MindSpore's layout, to msprobe's layout."""
