# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_unet_minsnr."""

NEEDS = ["diffusers"]
FAULTS = {
    "sine_first": [("[angle.cos(), angle.sin()]", "[angle.sin(), angle.cos()]")],
    "plain_linear_betas": [
        ("np.square(np.linspace(0.00085**0.5, 0.12**0.5, T, dtype=np.float64))", "np.linspace(0.00085, 0.12, T)"),
    ],
    "snr_weight_of_epsilon": [("snr.clamp(max=5.0) / (snr + 1)", "snr.clamp(max=5.0) / snr")],
    "clip_by_value": [("clip_grad_norm_(net.parameters(), 0.5)", "clip_grad_value_(net.parameters(), 0.5)")],
    "warmup_from_one": [("ramp = min(1.0, step / warm)", "ramp = min(1.0, (step + 1) / warm)")],
}
