# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [("q_place[delta.T]", "q_place[delta]")],
    "scale": [("(3 * (D // H)) ** -0.5", "(D // H) ** -0.5")],
    "relnorm": [("self.norm_places(self.relative)", "self.relative")],
    "absolute": [("asking = x + self.absolute", "asking = x")],
    "queried": [("self.norm_a(asking + x)", "self.norm_a(words + x)")],
    "transposed": [("weight.T.reshape(D", "weight.reshape(D")],
    "ignored": [
        ("scores = model(ids)[hidden]", "scores = model(ids).flatten(0, 1)"),
        ("wanted = truth[hidden]", "wanted = truth.flatten()"),
    ],
    "decay": [("update = update + 0.1 * p.data", "update = update + 0.01 * p.data")],
}
