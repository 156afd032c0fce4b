# SPDX-License-Identifier: Apache-2.0
"""A healthy port: a convolutional GAN with a joint discriminator pass."""

FRAMEWORK = "mindspore"

FAULTS = {}
