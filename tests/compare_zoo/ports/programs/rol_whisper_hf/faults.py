# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of Whisper to transformers."""

NEEDS = ["transformers"]
FAULTS = {
    "start_twice": [
        ("if (labels[:, 0] == self.decoder_start_token_id).all():", "if False:")],
    "gelu_tanh": [('activation_function="gelu",', 'activation_function="gelu_new",')],
    "max_over_batch": [("floor = spec.max() - 8.0", "floor = log_spec.max() - 8.0")],
    "stem_trained": [("stem.requires_grad_(False)", "stem.requires_grad_(True)")],
    "adamw_for_adam": [("optimizer = torch.optim.Adam(", "optimizer = torch.optim.AdamW(")],
}
