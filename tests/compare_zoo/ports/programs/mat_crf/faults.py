# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "carry_gate": [
        (
            "x = x + gate.sigmoid() * (new.clamp_min(0) - x)",
            "x = x + (1 - gate.sigmoid()) * (new.clamp_min(0) - x)",
        )
    ],
    "transition_axis": [
        ("(inner + front[:, None, :]).logsumexp(-1)", "(inner + front[:, :, None]).logsumexp(-2)")
    ],
    "masked_step": [
        ("final = torch.stack(fronts, 1)[torch.arange(len(sizes)), sizes - 1]", "final = front")
    ],
    "end_state": [("last = tags.gather(1, sizes[:, None] - 1)[:, 0]", "last = tags[:, -1]")],
    "sam_radius": [("0.3 * g / g.norm()", "0.3 * g")],
}
