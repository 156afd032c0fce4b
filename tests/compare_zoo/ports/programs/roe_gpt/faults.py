# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the functional GPT."""

FAULTS = {
    # the score is scaled by the model width, not by the width of a head
    "attn_scale": [("q * dim ** -0.5, k)", "q * x.shape[-1] ** -0.5, k)")],
    # every parameter decays, the biases and the norms too
    "decay_on_norms": [('if name.endswith(".w"):', 'if name in p:')],
    # each gradient is clipped by its own norm, not by the norm of all
    "clip_per_tensor": [("(MAX_NORM / (norm + 1e-6), max=1.0)", "(MAX_NORM / (g.norm() + 1e-6), max=1.0)")],
    # the schedule counts from nought
    "warmup_off_by_one": [("for count in range(1, STEPS + 1)]", "for count in range(STEPS)]")],
    # the tied head reads the table without a gradient
    "tied_head_detached": [('@ p["tok.w"].T', '@ p["tok.w"].detach().T')],
}
