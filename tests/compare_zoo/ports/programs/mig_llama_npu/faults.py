# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the default of the fused operator is left
    "epsilon": [
        ('params[f"{i}.input_norm"], 1e-5)', 'params[f"{i}.input_norm"])'),
        ('params[f"{i}.post_norm"], 1e-5)', 'params[f"{i}.post_norm"])'),
        ('params["final_norm"], 1e-5)', 'params["final_norm"])'),
    ],
    # keys are converted for halves, queries are forgotten
    "interleaved": [('halves(old["attention.wq.weight"], N_Q)', 'old["attention.wq.weight"]')],
    # heads that share keys are taken as neighbours are not
    "groups": [
        ("q.reshape(b, s, N_KV, n // N_KV, d)", "q.view(b, s, n // N_KV, N_KV, d).transpose(2, 3)"),
    ],
    "gate": [
        ('(old["w1.weight"], old["w3.weight"])', '(old["w3.weight"], old["w1.weight"])'),
    ],
    # decay as in plain Adam: in the gradient
    "decoupled": [
        (
            "torch._foreach_mul_(decayed, 1 - 5e-3 * 0.1)",
            "[g.add_(p, alpha=0.1) for g, p in zip(grads, values) if p.dim() == 2]",
        )
    ],
}
