# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "pairs": [
        ("even, odd = x[..., 0::2], x[..., 1::2]", "even, odd = x.chunk(2, dim=-1)"),
        (
            "torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)",
            "torch.cat([even * cos - odd * sin, odd * cos + even * sin], -1)",
        ),
    ],
    "scale": [("(PLAIN + TURNED) ** -0.5", "PLAIN**-0.5")],
    "latentnorm": [("        latent = self.kv_norm(latent)  # <- latentnorm latenteps\n", "")],
    "kvsplit": [
        (
            """        both = both.view(HEADS, PLAIN + VALUE, KV_RANK)  # <- kvsplit
        k_up, v_up = both.split([PLAIN, VALUE], dim=1)""",
            "        k_up, v_up = both.view(2, HEADS, PLAIN, KV_RANK)",
        )
    ],
    "latenteps": [("EPS, LATENT_EPS = 1e-4, 1e-6", "EPS, LATENT_EPS = 1e-4, 1e-4")],
    "gateup": [("torch.cat([gate, up])", "torch.cat([up, gate])")],
}
