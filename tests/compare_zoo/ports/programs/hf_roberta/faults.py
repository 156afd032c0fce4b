# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "places": [("(~absent).cumsum(1) * ~absent + PAD", "torch.arange(ids.shape[1])")],
    "activation": [('            activation="gelu",\n', "")],
    "normfirst": [("norm_first=False", "norm_first=True")],
    "order": [("torch.cat([q, k, v])", "torch.cat([k, q, v])")],
    "pooled": [("self.dense(x[:, 0])", "self.dense(x.mean(1))")],
    "coupled": [("torch.optim.AdamW(", "torch.optim.Adam(")],
}
