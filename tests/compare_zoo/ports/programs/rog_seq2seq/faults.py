# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the GRU sequence-to-sequence pair."""

FAULTS = {
    "gru_reset": [
        (
            "torch.tanh(xn + r * hn)",
            "torch.tanh(xn + (r * h) @ self.recurrent[:, 2 * UNITS :] + self.bias[1, 2 * UNITS :])",
        ),
    ],
    "enc_pad_state": [("h = torch.where(live[:, t, None], new, h)", "h = new")],
    "pad_loss": [("(tgt[:, 1:] != PAD).sum()", "tgt[:, 1:].numel()")],
    "clip_per_param": [("(norms.norm() + 1e-6)", "(norms + 1e-6)")],
    "adagrad_init": [("torch.full_like(p, 0.1)", "torch.full_like(p, 0.0)")],
}
