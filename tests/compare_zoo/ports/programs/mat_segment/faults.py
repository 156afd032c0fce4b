# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "group_layout": [
        (
            "g = y.reshape(b, h * wd, 2, c // 2)",
            "g = y.reshape(b, h * wd, c // 2, 2).transpose(2, 3)",
        )
    ],
    "skip_order": [("torch.cat((fine, grown), -1)", "torch.cat((grown, fine), -1)")],
    "focal_detach": [
        (
            "hard = (1 - hit).square() * -hit.log()",
            "hard = (1 - hit.detach()).square() * -hit.log()",
        )
    ],
    "ema_warmup": [("rate = max(0.05, 9 / (10 + t))", "rate = 0.05")],
    "decoupled_decay": [("p -= 0.02 * (update + 0.1 * p)", "p -= 0.02 * (update + 0.01 * p)")],
}
