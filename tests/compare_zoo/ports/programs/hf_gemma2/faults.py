# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "offset": [("scaled * (1 + self.gain)", "scaled * self.gain")],
    "window": [("(back < WINDOW)", "(back <= WINDOW)")],
    "groups": [
        (
            "q.view(batch, time, KV, HEADS // KV, HEAD)",
            "q.view(batch, time, HEADS // KV, KV, HEAD)",
        ),
        ('"bqgrd,bkgd->bgrqk"', '"bqrgd,bkgd->bgrqk"'),
        ('"bgrqk,bkgd->bqgrd"', '"bgrqk,bkgd->bqrgd"'),
    ],
    "scale": [("QUERY_SCALAR**-0.5", "HEAD**-0.5")],
    "final": [("return soft_cap(logits, FINAL_CAP)", "return logits")],
    "decay": [(', "weight_decay": 0.0}], lr', "}], lr")],
}
