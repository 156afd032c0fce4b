# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the coupling flow."""

FAULTS = {
    "order": [("order=torch.cat([on, off]).argsort()", "order=torch.cat([on, off])")],
    "actnorm_order": [
        ('((x + w["shift"]) / w["sigma"].exp())',
         '(x / w["sigma"].exp() + w["shift"])'),
    ],
    "inverse_transpose": [("return up * inv.mT", "return up * inv")],
    "clip_square": [("value=0.001 * factor ** 2", "value=0.001 * factor")],
    "decay_ahead": [("0.9 ** k * fix", "0.9 ** (k + 1) * fix")],
}
