# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of unet."""

FAULTS = {
    "time_freq": [("(-torch.arange(half) / half)", "(-torch.arange(half) / (half - 1))")],
    "group_axes": [("y.mean((2, 3), keepdim=True)", "y.mean((1, 3), keepdim=True)"),
                   ("centred.square().mean((2, 3), keepdim=True)",
                    "centred.square().mean((1, 3), keepdim=True)")],
    "upsampling": [("enlarge(h))", 'F.interpolate(h, scale_factor=2.0, mode="bilinear"))')],
    "velocity": [("phi.cos() * noise - phi.sin() * image", "phi.sin() * noise - phi.cos() * image")],
    "ema_decay": [("min((1 + turn) / (10 + turn), 0.95)", "0.95")],
}
