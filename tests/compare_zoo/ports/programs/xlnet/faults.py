# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "shift": [("away.clamp(min=0)", "(away - 1).clamp(min=0)")],
    "bias": [
        (
            '"content_bias": theirs["rel_attn.r_w_bias"]',
            '"content_bias": theirs["rel_attn.r_r_bias"]',
        ),
        (
            '"distance_bias": theirs["rel_attn.r_r_bias"]',
            '"distance_bias": theirs["rel_attn.r_w_bias"]',
        ),
    ],
    "scale": [("math.sqrt(WIDTH // HEADS)", "math.sqrt(WIDTH)")],
    "masked": [("torch.where(away >= 0,", "torch.where(away >= seen,")],
    "sinusoid": [("dim=1).flatten(1)  # <-", "dim=2).flatten(1)  # <-")],
    "memory": [("[:, -MEMORY:]", "[:, :MEMORY]")],
    "residual": [
        (
            "self.norm_one(x + self.attend(x, past, waves))",
            "x + self.norm_one(self.attend(x, past, waves))",
        )
    ],
    "cosine": [("math.pi * step / 4", "math.pi * (step + 1) / 4")],
}
