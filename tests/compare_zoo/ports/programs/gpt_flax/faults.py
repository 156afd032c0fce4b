# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "causal": [("torch.arange(length)[:, None] >=", "torch.arange(length)[:, None] + 1 >=")],
    "fused": [("qkv.unbind(-3)", "qkv.unbind(-2)")],
    "scale": [("query / math.sqrt(HEAD_DIM)", "query / math.sqrt(FEATURES)")],
    "order": [("sorted(names, key=lambda name: int(name[2:]))", "sorted(names)")],
    "final": [('    x = layer_norm(params["ln_f"], x)  # <- final\n', "")],
    "shift": [
        (
            "apply(params, tokens)[:, :-1], tokens[:, 1:]",
            "apply(params, tokens)[:, 1:], tokens[:, :-1]",
        )
    ],
    "decoupled": [
        ("state.mu, grads)", "state.mu, tree_map(lambda g, p: g + decay * p, grads, params))"),
        ("u + decay * p", "u"),
    ],
    "warm": [("(count + 1) / steps", "count / steps")],
}
