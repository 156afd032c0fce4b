# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of accumulate."""

FAULTS = {
    "reset_gate": [
        ("inner = r * (h @ self.w_h[:, 2 * d:] + self.b_h[2 * d:])",
         "inner = (r * h) @ self.w_h[:, 2 * d:] + self.b_h[2 * d:]")
    ],
    "carry": [("h = torch.where(real[:, t:t + 1], new, h)", "h = new")],
    "token_mean": [
        ("net(part_src, part_tgt) / tokens", "net(part_src, part_tgt) / (part_tgt.ne(0).sum() * MICRO)")
    ],
    "accumulator": [("torch.full_like(p, 0.1)", "torch.full_like(p, 0.0)")],
    "clip_scaled": [("for p in params]).norm()", "for p in params]).norm() * SCALE")],
}
