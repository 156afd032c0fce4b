# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "plus_one": [("1.0 + gain, 1e-6", "gain, 1e-6")],
    "scaled": [(" * H**0.5", "")],
    "precision": [
        (
            "return torch.cos(angle), torch.sin(angle)",
            "return torch.cos(angle).bfloat16().float(), torch.sin(angle).bfloat16().float()",
        )
    ],
    "groups": [
        (
            "k.repeat_interleave(NQ // NKV, 1), v.repeat_interleave(NQ // NKV, 1)",
            "k.repeat(1, NQ // NKV, 1, 1), v.repeat(1, NQ // NKV, 1, 1)",
        )
    ],
    "halves": [("gate, up = packed.chunk(2, dim=-1)", "up, gate = packed.chunk(2, dim=-1)")],
    "window": [("full.triu(1 - SPAN)", "full.triu(-SPAN)")],
    "capped": [("torch.tanh(logits / SOFTCAP) * SOFTCAP", "logits")],
    "micro": [("each.sum() / counted", "each.sum() / (wanted != PAD).sum() / 2")],
    "plain": [("Buffer(gains, decay=0.0)", "Buffer(gains, decay=0.1)")],
    "clipped": [
        (
            "norm = torch.linalg.vector_norm(torch.cat(gradients))",
            "norm = torch.cat(gradients).abs().max()",
        )
    ],
}
