# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of ner."""

FAULTS = {
    "charpool": [("y.tanh().max(2).values", "y.tanh().mean(2)")],
    "gateorder": [("i, f, g, o = gates.chunk(4, 1)", "i, g, f, o = gates.chunk(4, 1)")],
    "direction": [("(trans - peak).exp()).log()", "(trans.T - peak).exp()).log()")],
    "frozen": [("alpha = torch.where(valid[:, t].unsqueeze(1), step, alpha)", "alpha = step")],
    "stop": [('final = alpha + w["crf.end"]', "final = alpha")],
}
