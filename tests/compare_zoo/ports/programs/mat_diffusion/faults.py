# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "schedule": [("np.cos(u * np.pi / 2) ** 2", "np.cos(u * np.pi / 2)")],
    "frequencies": [("np.linspace(0, 1, E // 2)", "np.linspace(0, 1, E // 2, endpoint=False)")],
    "film_one": [
        ("silu(z + z * mod[..., :C] + mod[..., C:])", "silu(z * mod[..., :C] + mod[..., C:])")
    ],
    "v_target": [("recovered = sig * noisy - nse * out", "recovered = sig * noisy + nse * out")],
    "infinity_norm": [
        (
            "torch.maximum(0.95 * peak[k], g.abs() + 1e-2)",
            "0.95 * peak[k] + 0.05 * (g.abs() + 1e-2)",
        )
    ],
}
