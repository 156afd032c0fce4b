# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "logs": [("np.log10(np.maximum", "np.log(np.maximum")],
    "activated": [("x = F.gelu(self.front2(x))", "x = self.front2(x)")],
    "timescale": [("torch.arange(half) / (half - 1)", "torch.arange(half) / half")],
    "causal": [("FusedAttention(causal=True)", "FusedAttention()")],
    "halves": [("torch.cat([key, value])", "torch.cat([value, key])")],
    "crossed": [("(causal=True), FusedAttention()", "(causal=True), FusedAttention(causal=True)")],
    "padded": [("/ counted.sum()", "/ counted.numel()")],
    "moments": [("1 - 0.9**self.steps", "1 - 0.9")],
}
