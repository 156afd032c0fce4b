# SPDX-License-Identifier: Apache-2.0
"""A healthy port: ResNet with a frozen stem and two optimizers."""

FRAMEWORK = "tensorflow"

FAULTS = {}
