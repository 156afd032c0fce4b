# SPDX-License-Identifier: Apache-2.0
"""Faults of the BiLSTM-CRF port."""

FAULTS = {
    # the gate order of another library
    "gates_ifog": [("i, f, g, o = z.split", "i, f, o, g = z.split")],
    # the state goes on over the padding, which the backward direction reads first
    "reads_padding": [("h, c = torch.where(keep, h_new, h), torch.where(keep, c_new, c)", "h, c = h_new, c_new")],
    # the score of the true path lacks the transition to STOP
    "gold_without_end": [("valid = path[:, :-1] != STOP", "valid = path[:, 1:] != STOP")],
    "token_mean": [("return nll.sum() / len(nll)", "return nll.sum() / batch.real.sum()")],
    # each tensor clipped by its own norm
    "clip_each": [("g = g * (0.5 / (total + 1e-6))", "g = g * (0.5 / (g.norm() + 1e-6))")],
}
