# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "shards": [("torch.cat(rows, dim=1).flatten(0, 1)", "torch.cat((q, v, k))")],
    "places": [("mask.sum(1, keepdim=True)", "mask.new_full((len(mask), 1), mask.shape[1])")],
    "mask": [("mask = torch.zeros(len(prompts), width", "mask = torch.ones(len(prompts), width")],
    "gelu": [('"gelu_new"', '"gelu"')],
    "eval": [("model.requires_grad_(False).eval()", "model.requires_grad_(False)")],
}
