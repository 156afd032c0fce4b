# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "one": [
        ("best, chosen = probs.topk(N_ACTIVE, dim=-1)", "best, chosen = probs.topk(1, dim=-1)")
    ],
    "renormalised": [("        best = best / best.sum(-1, keepdim=True)  # <- renormalised\n", "")],
    "experts": [
        (
            '[old[f"{e}.w1.weight"].T for e in experts]',
            '[old[f"{e}.w1.weight"].T for e in experts[::-1]]',
        )
    ],
    "balance": [("probs.mean((0, 1)))", "probs.detach().mean((0, 1)))")],
    "residual": [("return x + y, balance", "return y, balance")],
    "summed": [("torch.stack(penalties).sum()", "torch.stack(penalties).mean()")],
}
