# SPDX-License-Identifier: Apache-2.0
"""Faults of the batched beam search."""
FAULTS = {
    "padmask": [("energy.masked_fill(~valid[:, None], NEG)", "energy * 1.0")],
    "resetgate": [("hr, hz, hn = F.linear(h, w_hh, b_hh).chunk(3, -1)",
                   "hr, hz, _ = F.linear(h, w_hh, b_hh).chunk(3, -1)"),
                  ("n = torch.tanh(xn + r * hn)",
                   "n = torch.tanh(xn + F.linear(r * h, w_hh.chunk(3)[2], b_hh.chunk(3)[2]))")],
    "reorder": [("h = h.gather(1, parent[..., None].expand_as(h))", "h = h.contiguous()")],
    "lengthnorm": [("score / ((5.0 + length) / 6.0).pow(ALPHA)", "score / length.pow(ALPHA)")],
    "finished": [("torch.where(done[..., None], only_eos, logp)",
                  "torch.where(done[..., None], logp, logp)")],
}
