# SPDX-License-Identifier: Apache-2.0
"""Faults of the Mistral port in Meta's layout."""

NEEDS = ["transformers"]
FAULTS = {
    "rope_rows": [
        ("return w.view(-1, 2, a.head // 2, a.dim).transpose(1, 2).reshape(w.shape)", "return w"),
    ],
    "window_edge": [("(back < self.a.window)", "(back <= self.a.window)")],
    "mean_per_row": [
        ("loss = (nll * w).sum() / w.sum()", "loss = ((nll * w).sum(1) / w.sum(1)).mean()"),
    ],
    "decay_norms": [("if p.ndim > 1:", "if wd > 0:")],
    "warmup_late": [("lr_at(step))", "lr_at(step + 1))")],
}
