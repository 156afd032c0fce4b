# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "patches": [("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 5, 1)")],
    "layerscale": [("return x + self.ls2 * y", "return x + y")],
    "resized": [('mode="bicubic")', 'mode="bilinear")')],
    "grid": [
        (".T.reshape(1, WIDTH, GRID, GRID)", ".T.reshape(1, WIDTH, GRID, GRID).mT"),
    ],
    "eps": [("INNER, EPS = 32, 4, 2, 4, 4, 48, 1e-6", "INNER, EPS = 32, 4, 2, 4, 4, 48, 1e-5")],
    "layer": [('old[f"{of}layer_scale2.lambda1"]', 'old["encoder.layer.0.layer_scale2.lambda1"]')],
}
