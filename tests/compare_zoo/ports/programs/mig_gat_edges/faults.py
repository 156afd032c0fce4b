# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [("dst, src = torch.nonzero", "src, dst = torch.nonzero")],
    "loops": [
        (
            "src, dst = torch.cat((src, itself)), torch.cat((dst, itself))",
            "src, dst = src.contiguous(), dst.contiguous()",
        )
    ],
    # PyTorch's default slope
    "slope": [("leaky_relu(alpha, self.slope)", "leaky_relu(alpha)")],
    # length one in place of sum one
    "rows": [("generator=rng), p=1.0)", "generator=rng))")],
    "rate": [("0.02 * 0.7**step", "0.02")],
}
