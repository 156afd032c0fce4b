# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "residual": [("return pooled + self.fc2", "return normed + self.fc2")],
    "pooled": [("self.norm(x[:, -1])", "self.norm(x[:, 0])")],
    "gelu": [
        (
            "        self.layers = encoder(3)\n",
            "        self.layers = encoder(3)\n        self.layers[1].activation = F.gelu\n",
        )
    ],
    "diagonal": [("sign[n * size : (n + 1) * size].fill", "sign.fill")],
    "patches": [("cut.permute(0, 2, 4, 1, 3, 5)", "cut.permute(0, 2, 4, 3, 5, 1)")],
    "clip": [("p in model.parameters()]", "name, p in model.named_parameters() if '.' in name]")],
}
