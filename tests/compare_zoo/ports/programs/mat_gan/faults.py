# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "pixel_norm": [
        (
            "(x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-3",
            "(x * x).sum(-1, keepdim=True) + 1e-3",
        )
    ],
    "equal_lr": [("(2 / z.shape[1]) ** 0.5", "(1 / z.shape[1]) ** 0.5")],
    "batch_spread": [
        ("torch.ones_like(h[..., :1]) * spread", "torch.ones_like(h[..., :1]) * spread.detach()")
    ],
    "sample_norm": [("slope.square().sum((1, 2, 3, 4)).sqrt()", "slope.square().sum(-1).sqrt()")],
    "second_moment": [
        ("root = (self.power[k] / correct).sqrt()", "root = self.power[k].sqrt() / correct")
    ],
}
