# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "distance": [("relative_attention_max_distance=12", "relative_attention_max_distance=128")],
    "scaled": [("tie_word_embeddings=True", "tie_word_embeddings=False")],
    "transposed": [("tree[name].flatten(1).T", "tree[name].flatten(1)")],
    "gate": [('{"wi_0": "wi_0", "wi_1": "wi_1", "wo"', '{"wi_0": "wi_1", "wi_1": "wi_0", "wo"')],
    "biases": [
        (
            '(params["decoder"], "decoder")',
            '(dict(params["decoder"], relpos_bias=params["encoder"]["relpos_bias"]), "decoder")',
        )
    ],
    "padding": [("input_ids.ne(0).long()", "torch.ones_like(input_ids)")],
}
