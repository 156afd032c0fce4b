# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "gate_halves": [
        (
            "keep, gate = z[..., :width], z[..., width:]",
            "gate, keep = z[..., :width], z[..., width:]",
        )
    ],
    "spatial_axis": [('"mn,bnc->bmc"', '"nm,bnc->bmc"')],
    "quick_gelu": [("0.5 * z * (1.0 + torch.erf(z / sqrt(2.0)))", "z * torch.sigmoid(1.702 * z)")],
    "smoothing": [
        ("torch.full_like(logp, s / N_CLASSES)", "torch.full_like(logp, s / (N_CLASSES - 1))")
    ],
    "warmup_start": [("base * (k + 1) / warm", "base * k / warm")],
}
