# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the Mixtral training."""

NEEDS = ["transformers"]
FAULTS = {
    "window": [("(back < WINDOW)", "(back <= WINDOW)")],
    "renormalised": [("share = best.softmax(-1)", "share = scores.softmax(-1).gather(-1, chosen)")],
    "gate_and_up": [
        (
            'state[a + "experts.w1"], state[a + "experts.w3"] = fused',
            'state[a + "experts.w3"], state[a + "experts.w1"] = fused',
        )
    ],
    "aux_over_layers": [("balance(torch.cat(routed))", "sum(balance(r) for r in routed) / len(routed)")],
    "decoupled": [("torch.optim.AdamW(", "torch.optim.Adam(")],
}
