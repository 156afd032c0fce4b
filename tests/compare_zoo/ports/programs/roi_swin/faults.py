# SPDX-License-Identifier: Apache-2.0
"""Faults for the gather-index shifted-window port."""

FAULTS = {
    "shift_mask": [("part.unsqueeze(2) == part.unsqueeze(1)",
                    "torch.ones(len(part), WIN * WIN, WIN * WIN, dtype=torch.bool)")],
    "smoothing": [("target = torch.full_like(logp, smooth / CLASSES)",
                   "target = torch.full_like(logp, smooth / (CLASSES - 1))"),
                  ("target[torch.arange(len(y)), y] += 1 - smooth", "target[torch.arange(len(y)), y] = 1 - smooth")],
    "accum_mean": [("p.grad = total / self.micro_batches", "p.grad = total")],
    "cosine_step": [("(self.done - 2) / 4", "(self.done - 1) / 4")],
    "no_decay": [("\"params\": others, \"weight_decay\": 0}", "\"params\": others, \"weight_decay\": decay}")],
}
