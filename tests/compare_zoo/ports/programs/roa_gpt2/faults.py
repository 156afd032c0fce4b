# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the GPT-2 port."""

FAULTS = {
    "attn_scale": [("* cfg.d_head**-0.5", "* cfg.d_model**-0.5")],
    "targets_unshifted": [("window[:, :-1], window[:, 1:]", "window[:, :-1], window[:, :-1]")],
    "clip_per_tensor": [
        (
            "total = sum(g.square().sum() for g in grads.values()).sqrt()",
            "total = {k: g.norm() for k, g in grads.items()}",
        ),
        ("(max_norm / (total + 1e-6))", "(max_norm / (total[k] + 1e-6))"),
    ],
    "decay_everything": [("if p[k].ndim > 1 else 0.0", "if p[k].ndim > 0 else 0.0")],
    "schedule_late": [("lr = learning_rate(step, cfg)", "lr = learning_rate(step + 1, cfg)")],
}
