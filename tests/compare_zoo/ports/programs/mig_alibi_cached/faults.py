# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the first head has no slope of its own but 1
    "slopes": [("[start * start**i for i in range(n)]", "[start**i for i in range(n)]")],
    # every new word is written over the one before it
    "stale": [
        (
            "here = slice(self.length, self.length + k.shape[1])",
            "here = slice(self.length - (k.shape[1] == 1), self.length + k.shape[1] - (k.shape[1] == 1))",
        )
    ],
    # padding on the left is seen
    "left": [("cache.length + s] = ids != 0", "cache.length + s] = True")],
    "dropped": [("training=False", "training=True")],
    # values stand before keys
    "shared": [("q, k, v, up = linear", "q, v, k, up = linear")],
}
