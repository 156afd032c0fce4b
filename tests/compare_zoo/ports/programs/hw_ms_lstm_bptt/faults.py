# SPDX-License-Identifier: Apache-2.0
"""A healthy port: a stateful LSTM with evaluation between steps."""

FRAMEWORK = "mindspore"

FAULTS = {}
