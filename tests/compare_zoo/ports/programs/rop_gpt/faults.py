# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they port GPT-2 to functions over separate per-head projections."""

FAULTS = {
    # the other GELU (CLIP's quick form) taken for the tanh form
    "gelu_variant": [("0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
                      "x * torch.sigmoid(1.702 * x)")],
    # positions counted from one, as in fairseq-descended checkpoints
    "positions_from_one": [("place = torch.arange(CONTEXT)", "place = torch.arange(1, CONTEXT + 1)")],
    # each tensor clipped by its own norm instead of the global norm
    "clip_per_tensor": [("{k: g * factor for k, g in grads.items()}",
                         "{k: g * (CLIP / (g.norm() + 1e-6)).clamp(max=1.0) for k, g in grads.items()}")],
    # the usual no-decay list of names does not match this program's names
    "decay_on_vectors": [('return name in ("tok", "pos") or name.endswith(".kernel")',
                          'return not name.endswith((".bias", "LayerNorm.weight"))')],
    # schedule counted from zero
    "warmup_late": [("(step + 1) / WARMUP", "step / WARMUP")],
}
