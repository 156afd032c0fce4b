# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "c_proj": [
        (
            'if ".c_" in name and value.ndim == 2:',
            'if ".c_" in name and value.ndim == 2 and value.shape[0] != value.shape[1]:',
        )
    ],
    "scale": [("self.scale = (WIDTH // HEADS) ** -0.5", "self.scale = WIDTH**-0.5")],
    "tied": [("        self.lm_head.weight = self.wte.embedding_table  # <- tied\n", "")],
    "ignore": [
        (
            "np.where(np.arange(10) < length, tokens, -100)",
            "np.where(np.arange(10) < length, tokens, 0)",
        )
    ],
    "schedule": [("for n in range(2)]", "for n in (-1, 0)]")],
}
