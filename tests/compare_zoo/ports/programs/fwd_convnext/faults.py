# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of convnext."""

FAULTS = {
    "dw_pad": [("(0, 0, 3, 3, 3, 3))", '(0, 0, 3, 3, 3, 3), mode="replicate")')],
    "gelu_form": [("y * (1 + torch.erf(y * math.sqrt(0.5))) / 2",
                   "y * (1 + torch.tanh(y * math.sqrt(2 / math.pi))) / 2")],
    "layer_scale": [('x.addcmul(y, c["gamma"])', "x + y")],
    "down_norm": [("            x = norm(x, self.ln_w, self.ln_b)  # <- down",
                   "            x = norm(x, self.ln_w, 0.0)  # <- down")],
    "patch_kernel": [("w.permute(2, 3, 1, 0)", "w.permute(3, 2, 1, 0)")],
}
