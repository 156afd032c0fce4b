# SPDX-License-Identifier: Apache-2.0
"""Faults for the memory autoencoder."""

FAULTS = {
    "shrink_threshold": [
        ("torch.where(att > 1 / len(items), att, 0.0)", "torch.relu(att - 1 / len(items))")
    ],
    "usage_prior": [("torch.exp(4.0 * cos) / st.usage", "torch.exp(4.0 * cos) * st.usage")],
    "up_slope": [
        (
            'y = leaky(double(read, w["up1.weight"], w["up1.bias"]))',
            'y = leaky(double(read, w["up1.weight"], w["up1.bias"]), 0.01)',
        )
    ],
    "batch_statistics": [
        ("torch.var_mean(h, (0, 1), correction=0)", "torch.var_mean(h, (0, 1), correction=1)")
    ],
    "commitment_stop": [("(z - read.detach()).square()", "(z.detach() - read).square()")],
}
