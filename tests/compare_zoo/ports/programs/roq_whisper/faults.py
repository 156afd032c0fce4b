# SPDX-License-Identifier: Apache-2.0
"""Faults of the Whisper port."""

NEEDS = ["transformers"]
FAULTS = {
    "sinusoid_step": [("(channels // 2 - 1)", "(channels // 2)")],
    "positions_trained": [('self.register_buffer("positions", sinusoids(N_AUDIO, STATE), persistent=False)',
                           "self.positions = nn.Parameter(sinusoids(N_AUDIO, STATE))")],
    "start_token": [("yield mel, [SOT, *torch", "yield mel, [EOT, *torch")],
    "pads_counted": [("loss = (each * weight).sum() / weight.sum()", "loss = each.mean()")],
    "second_moment": [("/ ((v / (1 - b2**self.n)).sqrt() + 1e-6)", "/ (v.sqrt() + 1e-6)")],
}
