# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "axes": [("values = extract(recordings)", "values = extract(recordings).transpose(1, 2)")],
    "normalised": [("(values - self.mean) / (self.std * 2)", "(values - self.mean) / self.std")],
    "padded": [
        ("row[: len(kept)] = kept", "row[: len(kept)] = (kept - self.mean) / (self.std * 2)"),
        ("return (values - self.mean) / (self.std * 2)", "return values"),
    ],
    "swapped": [("q, k, v = tensor.split(", "k, q, v = tensor.split(")],
    "precision": [
        ("with torch.inference_mode():", 'with torch.inference_mode(), torch.autocast("cpu"):')
    ],
}
