# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the mixture-of-experts pair."""

FAULTS = {
    "topk_renorm": [("gates = gates / gates.sum(-1, keepdim=True)", "gates = gates / 1.0")],
    "router_detach": [("gates = probs * chosen", "gates = probs.detach() * chosen")],
    "aux_top1": [
        (
            "torch.stack([c for _, c in routed]).mean((0, 1, 2))",
            "torch.stack([(p == p.amax(-1, keepdim=True)).float() for p, _ in routed]).mean((0, 1, 2))",
        ),
    ],
    "accum_scale": [("(loss / micro_batches).backward()", "loss.backward()")],
    "bias_correction": [('var_hat = s["var"] / (1 - b2 ** s["n"])', 'var_hat = s["var"]')],
}
