# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

FAULTS = {
    "encoder_norm": [("memory = self.enc_norm(x)", "memory = x")],
    "memory_mask": [("y = stage(y, past, memory, seen)", "y = stage(y, past, memory, torch.ones_like(seen))")],
    "scale_after_position": [
        ("self.lookup[side][ids] * D**0.5 + self.pos[: ids.shape[1]]",
         "(self.lookup[side][ids] + self.pos[: ids.shape[1]]) * D**0.5"),
    ],
    "pad_average": [("(per_token * real).sum() / real.sum()", "(per_token * real).mean()")],
    "noam_count": [("n = self.count + 1", "n = max(self.count, 1)")],
}
