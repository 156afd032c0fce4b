# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of t5."""

FAULTS = {
    "scaling": [("attn_mask=bias, scale=1.0)", "attn_mask=bias)")],
    "direction": [("n, two_sided=False)", "n, two_sided=True)")],
    "shift": [("F.pad(labels, (1, 0))[:, :n]", "labels")],
    "head_scale": [(" / math.sqrt(emb.shape[1])", "")],
    "wi_order": [('[get("wi_0"), get("wi_1")]', '[get("wi_1"), get("wi_0")]')],
}
