# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "rotary": [
        ("= interleave(q, a.n_head, a)", "= q"),
        ("= interleave(k, a.n_kv, a)", "= k"),
    ],
    "gate": [("w1, w3 = sd[src", "w3, w1 = sd[src")],
    "window": [("(back < self.a.window)", "(back <= self.a.window)")],
    "ignored": [(".sum() / keep[:, 1:].sum()", ".mean()")],
    "warmup": [("lr = lr_at(step)", "lr = lr_at(step + 1)")],
    "decay": [
        (
            '[p for name, p in net.named_parameters() if name.endswith("weight")]',
            "list(net.parameters())",
        )
    ],
}
