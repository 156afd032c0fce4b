# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "slope": [("negative_slope=0.2", "negative_slope=0.01")],
    "direction": [("torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=-2)")],
    "loops": [
        ("            neighbours[j, i] = 1  #", "            neighbours[j, i] = float(i != j)  #")
    ],
    "elu": [("x = F.elu(", "x = F.relu(")],
    "heads": [("neighbours).mean(0)", "neighbours).sum(0)")],
}
