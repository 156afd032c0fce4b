# SPDX-License-Identifier: Apache-2.0
"""Faults of the ConvNeXt port."""

FAULTS = {
    # the GroupNorm(1, C) reading of layer norm: statistics over the whole map
    "norm_axes": [("torch.var_mean(x, dim=1, correction=0", "torch.var_mean(x, dim=(1, 2, 3), correction=0")],
    # the smoothing mass is spread as if over the other classes only
    "smooth_others": [('CFG["smooth"] / k', 'CFG["smooth"] / (k - 1)')],
    # biases, norms and layer scale decay as well
    "decay_on_all": [("return sum(n > 1 for n in tensor.shape) > 1", "return tensor.numel() > 1")],
    "cosine_late": [("phase = step / CFG", "phase = max(step - 1, 0) / CFG")],
    # the average is taken before the step, so it lags by one
    "ema_before_step": [
        ("    sgd_(params, grads, velocity, lr_at(step))  # <- cosine_late decay_on_all\n", "    average_(shadow, params)  # <- ema_before_step\n"),
        ("\n    average_(shadow, params)  # <- ema_before_step\n    losses", "\n    sgd_(params, grads, velocity, lr_at(step))  # <- cosine_late decay_on_all\n    losses"),
    ],
}
