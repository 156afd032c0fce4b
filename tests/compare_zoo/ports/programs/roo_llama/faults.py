# SPDX-License-Identifier: Apache-2.0
"""Faults for the Llama pair."""

FAULTS = {
    # interleaved (Meta) weights used with the half-split rotation, not permuted
    "rope_layout": [
        ('q, k = to_halves(q, CFG["q_heads"]), to_halves(k, CFG["kv_heads"])', "q, k = q, k"),
    ],
    # query heads grouped head-minor: head h reads kv head h % n instead of h // group
    "gqa_tiled": [
        ("q = q.reshape(b, nk, nq // nk, t, hd)", "q = q.reshape(b, nq // nk, nk, t, hd).transpose(1, 2)"),
        ("o = o.reshape(b, nq, t, hd)", "o = o.transpose(1, 2).reshape(b, nq, t, hd)"),
    ],
    # mean of micro-batch means instead of the mean over all the tokens
    "micro_mean": [
        ("part = nll_sum(params, x, y) / total", 'part = nll_sum(params, x, y) / (y != -100).sum() / RUN["accum"]'),
    ],
    "clip_per_tensor": [
        ('grads = clip(grads, RUN["clip"])', 'grads = {n: clip({n: g}, RUN["clip"])[n] for n, g in grads.items()}'),
    ],
    "decay_on_norms": [
        ('return not name.endswith("norm")', "return True"),
    ],
}
