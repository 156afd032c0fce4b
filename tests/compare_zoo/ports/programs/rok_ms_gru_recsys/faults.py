# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the MindSpore migration of the click model."""

FRAMEWORK = "mindspore"

FAULTS = {
    "gate_order": [('in zip("rzn", blocks)', 'in zip("zrn", blocks)')],
    "reset_before": [("self.xn(x) + r * self.hn(h)", "self.xn(x) + self.hn(r * h)")],
    "last_step_not_masked": [("h = alive * new + (1 - alive) * h", "h = new")],
    "tags_mean_over_padding": [("total / keep.sum(axis=1)", "total / ids.shape[1]")],
    "accumulator_default": [("accum=1e-3, learning_rate", "learning_rate")],
}
