# SPDX-License-Identifier: Apache-2.0
"""Faults of the masked LM port."""

FAULTS = {
    # RoBERTa's positions begin after the padding index
    "position_offset": [("where = torch.arange(tokens.shape[1])", "where = torch.arange(tokens.shape[1]) + 1")],
    "padding_seen": [("attn_mask=keep)", "attn_mask=None)")],
    # the tied table gets no gradient from the decoder
    "decoder_detached": [("table = self.tok.t()", "table = self.tok.detach().t()")],
    "decay_everything": [('return name.startswith("w") or name in ("tok", "pos", "seg")', "return True")],
    "warmup_plus_one": [("lr = self.rate(self.t)", "lr = self.rate(self.t + 1)")],
}
