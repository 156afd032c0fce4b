# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the Llama port."""

FAULTS = {
    "kv_repeat": [
        ("q = q.unflatten(1, (self.kv_heads, share))", "q = q.unflatten(1, (share, self.kv_heads))"),
        (
            "k, v = k.unsqueeze(2), split(v, self.kv_heads).unsqueeze(2)",
            "k, v = k.unsqueeze(1), split(v, self.kv_heads).unsqueeze(1)",
        ),
    ],
    "k_unpermuted": [('key = permute(get("attention.wk"), c["num_kv_heads"])', 'key = get("attention.wk")')],
    "head_detached": [("lm_head = self.embed_tokens.weight", "lm_head = self.embed_tokens.weight.detach()")],
    "adam_betas": [(", betas=(0.9, 0.95)", "")],
    "pad_in_mean": [("/ keep.sum()", "/ keep.numel()")],
}
