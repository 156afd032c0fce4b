# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "others": [("rate / VOCAB)", "rate / (VOCAB - 1))")],
    "counted": [("(each * real).sum() / real.sum()", "(each * real).mean()")],
    "scaled": [("self.table[ids] * DIM**0.5", "self.table[ids]")],
    "unmasked": [("seen = (source != PAD)", "seen = (source >= PAD)")],
    "positions": [
        (
            "torch.stack((angles.sin(), angles.cos()), -1).flatten(1)",
            "torch.cat((angles.sin(), angles.cos()), -1)",
        )
    ],
}
