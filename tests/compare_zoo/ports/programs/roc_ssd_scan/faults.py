# SPDX-License-Identifier: Apache-2.0
"""Mistakes of replacing a recurrence with its dual form."""

FAULTS = {
    "segment_edge": [("total[..., None, :]  # <-", "(total - log_decay.transpose(1, 2))[..., None, :]  # <-")],
    "gate_first": [("y = rms(y.flatten(2) * (gate * gate.sigmoid()), self.post_gain)", "y = rms(y.flatten(2), self.post_gain) * (gate * gate.sigmoid())")],
    "ignored_mean": [("(nll * real).sum() / real.sum()", "(nll * real).mean()")],
    "gain_decay": [('r"gain|bias|log_rate|through"', 'r"norm|bias|log_rate|through"')],
    "warmup_step": [("min(step / 4, 1.0)", "min((step - 1) / 4, 1.0)")],
}
