# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "clip": [
        (
            "sum(g.flatten(1).square().sum(1) for g in grads.values()).sqrt()",
            "sum(g.mean(0).square().sum() for g in grads.values()).sqrt().expand(2)",
        )
    ],
    "outgoing": [('"ikc,jkc->ijc"', '"kic,kjc->ijc"')],
    "pair_bias": [('"ijc,ch->hij"', '"jic,ch->hij"')],
    "outer": [('"sia,sjb->ijab"', '"sia,sjb->ijba"')],
    "average": [("min(0.9, t / (9 + t))", "0.9")],
}
