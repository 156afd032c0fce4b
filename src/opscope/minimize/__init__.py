# SPDX-License-Identifier: Apache-2.0
"""A repro folder -> the smallest one that fails in the same way."""
