# SPDX-License-Identifier: Apache-2.0
"""Faults for the encoder-decoder pair."""

FAULTS = {
    # T5 does not divide by sqrt(d_kv)
    "scaled_scores": [
        ('logits = torch.einsum("hnd,hmd->hnm", q, k) + bias', 'logits = torch.einsum("hnd,hmd->hnm", q, k) * HEAD_DIM ** -0.5 + bias'),
    ],
    "bidirectional_buckets": [
        ("tgt.pos, two_sided=False)", "tgt.pos, two_sided=True)"),
    ],
    # the start token only at the head of the packed row; the others see the last token of their neighbour
    "shift_across_segments": [
        ("previous[tgt.pos == 0] = BOS", "previous[0] = BOS"),
    ],
    # eps / (V - 1) for the wrong classes, as fairseq does, instead of eps / V for all
    "fairseq_smoothing": [
        ("return ((1 - SMOOTH) * hit + SMOOTH * spread).mean()",
         "return ((1 - SMOOTH - SMOOTH / (VOCAB - 1)) * hit + SMOOTH * VOCAB / (VOCAB - 1) * spread).mean()"),
    ],
    "warmup_off_by_one": [
        ('adam.param_groups[0]["lr"] = learning_rate(step)', 'adam.param_groups[0]["lr"] = learning_rate(step + 1)'),
    ],
}
