# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "freq_table": [("[2.0**k for k in range(L)]", "[2.0 ** k * math.pi for k in range(L)]")],
    "ray_length": [("gaps[:, None] * speed", "gaps[:, None]")],
    "density_relu": [("sigma.clamp_min(0)", "torch.nn.functional.softplus(sigma)")],
    "inclusive_trans": [
        ("torch.cat([torch.zeros_like(tau[:1]), tau[:-1].cumsum(0)])", "tau.cumsum(0)")
    ],
    "white_background": [("seen + 1.0 - w.sum(0).unsqueeze(-1)", "seen")],
}
