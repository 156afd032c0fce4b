# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "twice": [("there & (place >= FIRST)", "there & (place >= 0)")],
    "window": [
        (
            "fn.pad(x, (0, 0, REACH, REACH), value=fill)",
            "fn.pad(x, (0, 0, REACH + 1, REACH - 1), value=fill)",
        )
    ],
    "own": [("gq = gq[:, :, :FIRST]", "gq = q[:, :, :FIRST]")],
    "padding": [("gv, attn_mask=seen)", "gv)")],
    "scaled": [("gq = gq[:, :, :FIRST]", "gq = gq[:, :, :FIRST] * HEAD**-0.5")],
    "residual": [
        (
            "self.norm2(y + self.down(fn.gelu(self.up(y))))",
            "self.norm2(x + self.down(fn.gelu(self.up(y))))",
        )
    ],
    "places": [
        ("torch.arange(ids.shape[1]) + NOTHING + 1", "torch.arange(ids.shape[1]) + NOTHING")
    ],
    "head": [("self.head_norm(fn.gelu(self.head(x)))", "self.head_norm(self.head(x))")],
    "ignored": [("-(said * chosen).sum() / chosen.sum()", "-(said * there).sum() / there.sum()")],
    "schedule": [("(1 - step / 4)", "(1 - (step + 1) / 4)")],
}
