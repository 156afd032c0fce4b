# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of moe."""

FAULTS = {
    "rotary": [("even, odd = x[..., 0::2], x[..., 1::2]", "even, odd = x.chunk(2, -1)")],
    "groups": [("q = self.rope(q).view(b, KV, HEADS // KV, t, self.size)",
                "q = self.rope(q).view(b, HEADS // KV, KV, t, self.size).transpose(1, 2)")],
    "renorm": [("top = top / top.sum(-1, keepdim=True)", "top = top * 1.0")],
    "capacity": [("room = len(flat) * PICK // EXPERTS", "room = len(flat)")],
    "order": [("place = taken.cumsum(0)", "place = taken.flip(0).cumsum(0).flip(0)")],
}
