# SPDX-License-Identifier: Apache-2.0
"""A healthy port: two towers under vmap with a learnt temperature."""

FRAMEWORK = "jax"

FAULTS = {}
