# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they carry a diffusion model over to another code base."""

FAULTS = {
    # frequencies divided by half instead of half - 1 (the downscale_freq_shift of diffusers)
    "frequency_shift": [("/ (half - 1))", "/ half)")],
    # channels of a group are taken strided instead of adjacent
    "groups_interleaved": [("g = x.reshape(b, N_GROUPS, c // N_GROUPS, rows * cols)",
                            "g = x.reshape(b, c // N_GROUPS, N_GROUPS, rows * cols).transpose(1, 2)"),
                           (".sqrt()).reshape(x.shape)", ".sqrt()).transpose(1, 2).reshape(x.shape)")],
    # the table starts with one at time zero, the index does not know
    "alpha_one_step_early": [("KEPT[t + 1]", "KEPT[t]")],
    # min-SNR weights of x0 prediction used for epsilon prediction
    "snr_weight_of_x0": [("torch.full_like(signal, gamma)) / signal", "torch.full_like(signal, gamma))")],
    # a constant decay from the first update on
    "ema_without_warmup": [("min(0.999, (1 + n) / (10 + n))", "0.999")],
}
