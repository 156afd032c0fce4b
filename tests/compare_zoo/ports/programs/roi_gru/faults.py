# SPDX-License-Identifier: Apache-2.0
"""Faults for the own-cell recurrent port."""

FAULTS = {
    "reset_gate": [("r * (h @ self.cand_h + self.cand_hb)", "(r * h) @ self.cand_h + self.cand_hb")],
    "step_detach": [("new.append(x)", "new.append(x.detach())  # <- step_detach")],
    "clip_global": [("    return [g * factor for g in grads]",
                     "    return [g * min(1.0, max_norm / (g.norm().item() + 1e-6)) for g in grads]")],
    "carried_state": [("state = [h.detach() for h in last]", "state = [torch.zeros_like(h) for h in last]")],
    "nesterov": [("(g + HP[\"mu\"] * v)", "v")],
}
