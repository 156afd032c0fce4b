# SPDX-License-Identifier: Apache-2.0
"""A healthy port: padded graphs with segment_sum and a hand-written Adam."""

FRAMEWORK = "jax"

FAULTS = {}
