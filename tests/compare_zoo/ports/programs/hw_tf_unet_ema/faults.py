# SPDX-License-Identifier: Apache-2.0
"""A healthy port: U-Net with Dice loss and averaged weights."""

FRAMEWORK = "tensorflow"

FAULTS = {}
