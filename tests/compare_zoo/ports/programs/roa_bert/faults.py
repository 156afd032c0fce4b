# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the BERT port."""

FAULTS = {
    "norm_eps": [('torch.sqrt(var + HP["eps"])', "torch.sqrt(var + 1e-5)")],
    "segment_ids": [("seg = [0] * (len(a) + 2) + [1] * (len(b) + 1)", "seg = [0] * (len(a) + 1) + [1] * (len(b) + 2)")],
    "unmasked_words": [('batch["hidden"].nonzero(as_tuple=True)', '(batch["tokens"] > 2).nonzero(as_tuple=True)')],
    "pooler_detached": [("first = x[:, 0, :]", "first = x[:, 0, :].detach()")],
    "no_bias_correction": [("fix1, fix2 = 1 - b1**t, 1 - b2**t", "fix1, fix2 = 1.0, 1.0")],
}
