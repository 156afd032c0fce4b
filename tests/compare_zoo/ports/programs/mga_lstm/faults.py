# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of lstm."""

FAULTS = {
    "gate_order": [("i, f, g, o = z.split", "i, g, f, o = z.split")],
    "back_start": [("live = mask[t].unsqueeze(-1)", "live = torch.ones_like(mask[t]).unsqueeze(-1)")],
    "class_mean": [("(w * nll).sum() / w.sum()", "(w * nll).sum() / mask.sum()")],
    "clip_whole": [("g = p.grad * factor", "g = p.grad * torch.clamp(limit / (p.grad.norm() + 1e-6), max=1.0)")],
    "rms_inside": [("(s.sqrt() + 1e-6)", "(s + 1e-6).sqrt()")],
}
