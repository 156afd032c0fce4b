# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "offset": [("torch.arange(ids.shape[1]) + OFFSET", "torch.arange(ids.shape[1])")],
    "scale": [("words(ids) * math.sqrt(WIDTH)", "words(ids)")],
    "start": [("summary[:, :1], START)", "summary[:, :1], 0)")],
    "crossmask": [("self.cross(x, memory, seen)", "self.cross(x, memory)")],
    "ignored": [("labels, ignore_index=PAD)", "labels)")],
    "warmup": [("min(step / 2, (10 - step) / 8)", "min((step + 1) / 2, (10 - step) / 8)")],
}
