# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "revin_variance": [(".sum(-1) / cfg.past + 1e-3)", ".sum(-1) / (cfg.past - 1) + 1e-3)")],
    "causal_pad": [("delayed(x, (2 - k) * d)", "delayed(x, k * d)")],
    "gate_order": [
        ("h[..., n:].sigmoid() * h[..., :n].tanh()", "h[..., :n].sigmoid() * h[..., n:].tanh()")
    ],
    "cosine_start": [
        ("done = (step - cfg.warmup) / (cfg.steps - cfg.warmup)", "done = step / cfg.steps")
    ],
    "nesterov_lookahead": [
        ("w.sub_(lr * (g + cfg.mu * velocity[name]))", "w.sub_(lr * velocity[name])")
    ],
}
