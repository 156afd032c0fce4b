# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "dueling_mean": [
        (
            "centred = adv - adv.sum(-1, keepdim=True) / adv.shape[-1]",
            "centred = adv - adv.amax(-1, keepdim=True)",
        )
    ],
    "reset_state": [
        (
            "torch.cat([torch.ones_like(ends[:1]), ends])",
            "torch.cat([ends, torch.ones_like(ends[:1])])",
        )
    ],
    "done_mask": [
        ("reward + DISCOUNT * (1 - ends) * ahead", "(reward + DISCOUNT * ahead) * (1 - ends)")
    ],
    "advantage_detach": [("edge = edge.detach()", "edge = edge * 1.0")],
    "dampening": [("0.9 * trace[k] + 0.9 * d", "0.9 * trace[k] + d")],
}
