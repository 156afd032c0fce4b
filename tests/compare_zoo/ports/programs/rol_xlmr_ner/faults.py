# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the tagger to transformers."""

NEEDS = ["transformers"]
FAULTS = {
    "ln_eps": [("        layer_norm_eps=1e-5)", "        layer_norm_eps=1e-12)")],
    "position_offset": [("mask.cumsum(-1) * mask + self.pad", "mask.cumsum(-1) * mask")],
    "label_pad": [("label_pad_token_id=-100)", "label_pad_token_id=0)")],
    "decay_names": [('no_decay = ("bias", "LayerNorm.weight")', 'no_decay = ("bias", "layer_norm.weight")')],
    "clip_after_step": [
        (("        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # <- clip_after_step\n"
         "        optimizer.step()  # <- decay_names clip_after_step\n"),
         ("        optimizer.step()  # <- decay_names clip_after_step\n"
         "        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # <- clip_after_step\n"))],
}
