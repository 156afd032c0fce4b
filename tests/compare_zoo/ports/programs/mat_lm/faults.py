# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "norm_eps": [("torch.sqrt(length**2 / D + eps)", "(torch.sqrt(length ** 2 / D) + eps)")],
    "rotary_pairs": [
        (
            "pair = x.unflatten(-1, (2, DH // 2)).transpose(-1, -2).contiguous()",
            "pair = x.unflatten(-1, (DH // 2, 2)).contiguous()",
        )
    ],
    "kv_groups": [
        (
            "spin(q.view(b, t, KV, Q_PER_KV, DH))",
            "spin(q.view(b, t, Q_PER_KV, KV, DH).transpose(2, 3))",
        )
    ],
    "smoothing": [("amount * logp.mean(-1))", "amount * logp.mean(-1).detach())")],
    "lion_betas": [("look=0.9, keep=0.98", "look=0.98, keep=0.9")],
}
