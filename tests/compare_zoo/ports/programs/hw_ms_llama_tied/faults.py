# SPDX-License-Identifier: Apache-2.0
"""A healthy port: tied Llama, fused and scaled in the port."""

FRAMEWORK = "mindspore"

FAULTS = {}
