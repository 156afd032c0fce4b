# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "renormalize": [
        ("scores = chosen.softmax(dim=-1)", "scores = logits.softmax(dim=-1).gather(-1, indices)")
    ],
    "unpermute": [("back = torch.argsort(order)", "back = order")],
    "shared_gate": [("torch.addcmul(routed, gate, shared)", "routed + shared")],
    "balance": [
        (
            "fraction = counts / (len(x) * K)",
            "fraction = torch.bincount(indices[:, 0], minlength=E) / len(x)",
        )
    ],
    "causal": [("shifted * taps[2 - back]", "shifted * taps[back - 1]")],
}
