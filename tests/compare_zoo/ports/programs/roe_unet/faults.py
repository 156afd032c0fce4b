# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the U-Net of unfolded convolutions."""

FAULTS = {
    # the sines come first
    "sin_cos_order": [("[angle.cos(), angle.sin()]", "[angle.sin(), angle.cos()]")],
    # the padding before the strided convolution is on all sides
    "downsample_pad": [("kept, pad=(0, 1, 0, 1), stride=2", "kept, pad=(1, 1, 1, 1), stride=2")],
    # the weight is the clamped ratio itself, as for a prediction of x0
    "min_snr": [("np.minimum(1.0, 5.0 / ratio)", "np.minimum(ratio, 5.0)")],
    # L2 in the gradient, not decoupled decay
    "coupled_decay": [("torch.optim.AdamW(", "torch.optim.Adam(")],
    # the betas themselves are linear, not their roots
    "beta_schedule": [("np.square(np.linspace(np.sqrt(first), np.sqrt(last), steps))", "np.linspace(first, last, steps)")],
}
