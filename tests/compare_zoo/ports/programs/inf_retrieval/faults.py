# SPDX-License-Identifier: Apache-2.0
"""Faults of the offline retriever."""
FAULTS = {
    "activation": [("0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))",
                    "x * torch.sigmoid(1.702 * x)")],
    "places": [("self.place[:width]", "self.place[1:width + 1]")],
    "keymask": [("bias.masked_fill(~real[:, None, None], float(\"-inf\"))",
                 "bias.masked_fill(~real[:, None, None], 0.0)")],
    "pooling": [("mean = total / lengths[:, None]", "mean = x.mean(1)")],
    "cosine": [("return mean / mean.norm(dim=1, keepdim=True)",
                "return mean")],
}
