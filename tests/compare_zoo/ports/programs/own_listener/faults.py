# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "loudness": [("wave = (wave - mean) / (var + 1e-5).sqrt()", "wave = wave - mean")],
    "placed": [("F.pad(x, (0, 0, 3, 2))", "F.pad(x, (0, 0, 2, 3))")],
    "distractors": [("drawn += drawn >= torch.arange(FRAMES)[:, None]", "drawn += 0")],
    "flowing": [("self.target(features)", "self.target(features.detach())")],
    "slowly": [("grad * 0.1", "grad")],
}
