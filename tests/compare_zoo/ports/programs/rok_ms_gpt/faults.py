# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the MindSpore migration of the character GPT."""

FRAMEWORK = "mindspore"

FAULTS = {
    "layer_norm_eps": [("self.norm1 = nn.LayerNorm((hidden,), epsilon=1e-5)", "self.norm1 = nn.LayerNorm((hidden,))")],
    "mask_hides_self": [("(np.ones((1, 1, seq, seq), np.float32), k=1)", "(np.ones((1, 1, seq, seq), np.float32), k=0)")],
    "no_bias_correction": [
        ("c1, c2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t", "c1, c2 = 1.0, 1.0")],
    "qkv_order": [('zip(("query", "key", "value"), ', 'zip(("query", "value", "key"), ')],
    "warmup_off_by_one": [("min(1.0, (it + 1) / 3)", "min(1.0, it / 3)")],
}
