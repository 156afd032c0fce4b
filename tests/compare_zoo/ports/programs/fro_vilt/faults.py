# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "corners": [("align_corners=True", "align_corners=False")],
    "modality": [("self.kinds[1]", "self.kinds[0]")],
    "cells": [("kernel.permute(0, 2, 3, 1).flatten(1)", "kernel.flatten(1)")],
    "scaled": [("error.sum(1).mean()", "error.mean()")],
    "clip": [("0.1 * scale * g", "0.1 * g")],
}
