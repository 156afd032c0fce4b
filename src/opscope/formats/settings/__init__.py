# SPDX-License-Identifier: Apache-2.0
"""Collection settings of other tools: written, checked, and read as what a recording is asked to
do.

A kind of settings is one module with a Kind in it and one line in kinds.BUILTIN.
"""
