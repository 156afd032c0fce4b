# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("epsilon=1e-12", "epsilon=1e-3")],
    "activation": [
        ('gelu(einsum_dense(x, head["transform"]))', 'einsum_dense(x, head["transform"])')
    ],
    "transposed": [(".T.reshape(UNITS, HEADS, HEAD_SIZE)", ".reshape(UNITS, HEADS, HEAD_SIZE)")],
    "scale": [("HEAD_SIZE**-0.5", "UNITS**-0.5")],
    "padding": [("keep[:, None, None, :], logits", "keep[:, None, :, None], logits")],
    "residual": [
        (
            'layer_normalization(x + outer, weights["output_norm"])',
            'x + layer_normalization(outer, weights["output_norm"])',
        )
    ],
    "reduction": [("each.sum() / weights.sum()", "each.mean()")],
    "correction": [
        (
            "first, second = 1 - 0.9**self.iterations, 1 - 0.999**self.iterations",
            "first, second = 1.0, 1.0",
        )
    ],
}
