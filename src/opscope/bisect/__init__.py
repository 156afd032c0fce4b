# SPDX-License-Identifier: Apache-2.0
"""Which operators, or which differences between two runs, make a command fail."""
