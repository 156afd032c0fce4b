# SPDX-License-Identifier: Apache-2.0
"""A healthy port: a masked transformer tagger with smoothing and clipping."""

FRAMEWORK = "tensorflow"

FAULTS = {}
