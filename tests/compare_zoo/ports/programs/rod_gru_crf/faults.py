# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

FAULTS = {
    "reset_early": [
        ("torch.tanh(gx[2] + r * gh[2])",
         'torch.tanh(gx[2] + torch.einsum("dbk,dkh->dbh", r * h, p["wh"][:, 2]) + p["bh"][:, 2, None])'),
    ],
    "backward_over_padding": [
        ("return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)", "return L - 1 - t"),
    ],
    "end_of_padding": [("final = tags.gather(1, lengths[:, None] - 1).squeeze(1)", "final = tags[:, -1]")],
    "sentence_average": [("loss = each.sum() / lengths.sum()", "loss = (each / lengths).mean()")],
    "rate_in_velocity": [
        ("v += g", "v += self.lr * g"),
        ("w -= self.lr * v", "w -= v"),
    ],
}
