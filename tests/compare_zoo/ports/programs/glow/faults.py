# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "squeeze": [("x.permute(0, 1, 3, 5, 2, 4)", "x.permute(0, 1, 3, 2, 4, 5)")],
    "spread": [("-torch.log(variance.sqrt() + 1e-6)", "-torch.log(variance + 1e-6)")],
    "places": [("h * w * logs.sum()", "logs.sum()")],
    "mixing": [('old[f"{mix}.weight"].T', 'old[f"{mix}.weight"]')],
    "cross": [
        (
            "logit, shift = h.tensor_split(2, dim=-1)",
            "shift, logit = h[..., 0::2], h[..., 1::2]",
        )
    ],
    "near_one": [("torch.sigmoid(logit + 2.0)", "torch.sigmoid(logit)")],
    "shift": [("(z2 + shift) * scale", "z2 * scale + shift")],
    "prior": [("mean, logsd = conv(v", "logsd, mean = conv(v")],
    "bits": [(" - math.log(N_BINS) * dimensions", " - math.log(N_BINS)")],
}
