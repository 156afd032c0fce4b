# SPDX-License-Identifier: Apache-2.0
"""Faults of the denoising UNet port."""

FAULTS = {
    # diffusers' flip_sin_to_cos
    "cos_first": [("[phase.sin(), phase.cos()]", "[phase.cos(), phase.sin()]")],
    # torch's var divides by n - 1 unless told otherwise
    "unbiased_var": [("grouped.var(2, unbiased=False, keepdim=True)", "grouped.var(2, keepdim=True)")],
    "skip_order": [("torch.cat((self.grow(low), high), 1)", "torch.cat((high, self.grow(low)), 1)")],
    # the weight of v-prediction
    "snr_for_v": [("torch.full_like(ratio, 5.0)) / ratio", "torch.full_like(ratio, 5.0)) / (ratio + 1)")],
    "bias_correction": [("m_hat, v_hat = m / (1 - 0.9**n), v / (1 - 0.99**n)", "m_hat, v_hat = m, v")],
}
