# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "order": [
        ("[y[:, None] - y, x[:, None] - x]", "[x[:, None] - x, y[:, None] - y]"),
    ],
    "log": [("np.log1p(np.abs(distance)) / np.log(8)", "np.log1p(np.abs(distance))")],
    "cosine": [("k = k / k.norm(dim=-1, keepdim=True)", "k = k / k.norm(dim=-2, keepdim=True)")],
    "hottest": [("self.temperature.clamp(max=math.log(100.0)).exp()", "self.temperature.exp()")],
    "bounded": [("bias = 16 * bias.sigmoid()", "bias = bias.sigmoid()")],
    "rolled": [
        ("image.roll((-self.shift, -self.shift), (1, 2))", "image.roll((-self.shift, 0), (1, 2))"),
    ],
    "post": [
        (
            "self.norm2(self.down(fn.gelu(self.up(image))))",
            "self.down(fn.gelu(self.up(self.norm2(image))))",
        ),
    ],
    "merged": [("cut.permute(0, 1, 3, 4, 2, 5)", "cut.permute(0, 1, 3, 2, 4, 5)")],
    "decayed": [('{"params": others, "weight_decay": 0.0}', '{"params": others}')],
}
