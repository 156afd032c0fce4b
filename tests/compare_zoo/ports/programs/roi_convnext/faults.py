# SPDX-License-Identifier: Apache-2.0
"""Faults for the channels-last ConvNeXt port."""

FAULTS = {
    "ln_eps": [("y.movedim(1, -1), eps=EPS)", "y.movedim(1, -1), eps=1e-5)")],
    "head_norm": [("self.ln_head(z.flatten(1, 2).mean(1))", "self.ln_head(z).flatten(1, 2).mean(1)")],
    "mixup_target": [("lam * F.cross_entropy(out, y_a) + (1 - lam) * F.cross_entropy(out, y_b)",
                      "lam * F.cross_entropy(out, y_b) + (1 - lam) * F.cross_entropy(out, y_a)")],
    "clip_kind": [("clip_grad_norm_(net.parameters(), 0.5)", "clip_grad_value_(net.parameters(), 0.5)")],
    "decay_one_dim": [("\"params\": light, \"weight_decay\": 0.0}", "\"params\": light}")],
}
