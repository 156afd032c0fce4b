# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "logs": [("np.log(raw + 1.0)", "np.log2(raw + 1.0)")],
    "bags": [('side="right"', 'side="left"')],
    "pooling": [
        (
            "counts[:, start:end] @ self.table[start:end]",
            "F.normalize(counts[:, start:end], p=1) @ self.table[start:end]",
        )
    ],
    "bottom": [('EMBEDDING, last="relu"', 'EMBEDDING, last="none"')],
    "pairs": [(".tril(-1).bool()", ".triu(1).bool()")],
    "sigmoid": [
        (
            "F.softplus(logits) - clicked * logits",
            "F.softplus(logits.sigmoid()) - clicked * logits.sigmoid()",
        )
    ],
    "accumulator": [("torch.full_like(p, 0.0)", "torch.full_like(p, 0.1)")],
}
