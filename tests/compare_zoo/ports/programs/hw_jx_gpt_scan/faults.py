# SPDX-License-Identifier: Apache-2.0
"""A healthy port: GPT scanned over layers and micro-batches."""

FRAMEWORK = "jax"

FAULTS = {}
