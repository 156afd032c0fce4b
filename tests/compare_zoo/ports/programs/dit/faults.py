# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "chunks": [
        (
            "beta1, gamma1, alpha1, beta2, gamma2, alpha2 = adaptive",
            "gamma1, beta1, alpha1, gamma2, beta2, alpha2 = adaptive",
        )
    ],
    "cosine": [("[angle.cos(), angle.sin()]", "[angle.sin(), angle.cos()]")],
    "scaled": [
        (
            "scaled_dot_product_attention(q, k, v)",
            "scaled_dot_product_attention(q, k, v, scale=1.0)",
        )
    ],
    "tanh": [(', approximate="tanh")', ")")],
    "rows": [("for axis in (x, y)]", "for axis in (y, x)]")],
    "pixels": [
        (
            "cut = tokens.reshape(-1, GRID, GRID, P, P, C).transpose(2, 3)",
            "cut = tokens.reshape(-1, GRID, GRID, C, P, P).permute(0, 1, 4, 2, 5, 3)",
        ),
    ],
    "schedule": [
        (
            "np.cumprod(1.0 - np.linspace(1e-3, 0.2, N_STEPS))",
            "np.append(1.0, np.cumprod(1.0 - np.linspace(1e-3, 0.2, N_STEPS)))",
        )
    ],
    "average": [("torch.lerp(a, w, 0.1)", "torch.lerp(a, w, 0.9)")],
}
