# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "windows": [("sentence.shape[1] - width + 1", "sentence.shape[1] - width")],
    "channels": [
        ("(frozen[word_ids], trained[word_ids])", "(trained[word_ids], trained[word_ids])")
    ],
    "pooling": [("h.amax(1)", "h.mean(1)")],
    "widths": [("torch.cat(maxima, dim=-1)", "torch.stack(maxima, dim=-1).flatten(1)")],
    "rho": [("rho=0.95", "rho=0.9")],
    "epsilon": [("epsilon=1e-6", "epsilon=1e-7")],
    "deltas": [("addcmul_(update, update", "addcmul_(gradient, gradient")],
    "constraint": [
        ("kernel.square().sum(dim=0, keepdim=True)", "kernel.square().sum(dim=1, keepdim=True)")
    ],
}
