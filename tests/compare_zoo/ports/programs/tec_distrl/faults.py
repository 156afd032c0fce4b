# SPDX-License-Identifier: Apache-2.0
"""Faults for the C51 pair."""

FAULTS = {
    "dueling_mean": [
        ("(adv - adv.sum(1, keepdim=True) / S.actions)", "(adv - adv.mean(-1, keepdim=True))")
    ],
    "double_choice": [
        (
            'torch.einsum("bak,k->ba", distribution(net, nxt), GRID)',
            'torch.einsum("bak,k->ba", distribution(lagged, nxt), GRID)',
        )
    ],
    "step_discount": [("reach = S.gamma**S.n * alive", "reach = S.gamma * alive")],
    "centred": [("s - a * a for s, a in", "s for s, a in")],
    "target_average": [("torch.lerp(new, old, S.polyak)", "torch.lerp(old, new, S.polyak)")],
}
