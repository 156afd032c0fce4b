# SPDX-License-Identifier: Apache-2.0
"""Five faults of the functional T5 port."""

NEEDS = ["transformers"]
FAULTS = {
    "buckets": [('bias(p["dec.0.self_relative_attention_bias"], t, False)', 'bias(p["dec.0.self_relative_attention_bias"], t, True)')],
    "tied_head": [('y @ p["shared"].t()', 'y @ p["shared"].detach().t()')],
    "cross_mask": [("memory, add=pad)", "memory, add=0.0)")],
    "pad_loss": [("weight = (tgt != 0).float()", "weight = (tgt >= 0).float()")],
    "beta2_step": [("1.0 - count**-0.8", "1.0 - (count + 1) ** -0.8")],
}
