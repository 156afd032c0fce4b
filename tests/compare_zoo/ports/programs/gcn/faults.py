# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "loops": [("adjacency + torch.eye(N)", "adjacency + 2 * torch.eye(N)")],
    "normalised": [("scale @ adjacency @ scale", "scale @ scale @ adjacency")],
    "direction": [("adjacency[edges % N, edges // N]", "adjacency[edges // N, edges % N]")],
    "slope": [("0.2 * e", "0.01 * e")],
    "over": [("torch.softmax(e, dim=2)", "torch.softmax(e, dim=1)")],
    "heads": [("(weights @ h).mean(0)", "(weights @ h).sum(0)")],
    "masked": [(".sum() / known.sum()", ".mean()")],
    "decay": [("g + 5e-4 * p", "g + 5e-3 * p")],
}
