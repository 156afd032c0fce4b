# SPDX-License-Identifier: Apache-2.0
"""Faults for the session recommender."""

FAULTS = {
    "first_state": [('w["h0"].repeat(hp.batch, 1)', 'torch.zeros(hp.batch, hp.dim) + 0 * w["h0"]')],
    "reset_gate": [
        (
            'reset * (state @ w["cand_h"] + w["cand_bh"])',
            '(reset * state) @ w["cand_h"] + w["cand_bh"]',
        )
    ],
    "positive_masked": [
        (
            "torch.exp(s - s.max(1, keepdim=True).values) * off",
            "torch.exp(s - s.max(1, keepdim=True).values)",
        )
    ],
    "score_bias": [
        ("(dots + rows[:, -1]) * (2.0 / hp.dim**0.5)", "dots * (2.0 / hp.dim ** 0.5) + rows[:, -1]")
    ],
    "accumulator_sum": [("acc += grad.square()", "acc.mul_(0.9).add_(grad.square(), alpha=0.1)")],
}
