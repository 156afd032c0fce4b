# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the root is forgotten
    "unit": [("x * torch.rsqrt((x**2).sum(-1, keepdim=True))", "x / (x**2).sum(-1, keepdim=True)")],
    # the weight decay is not within the norm of the gradient
    "trust": [("torch.sqrt((g * g).sum())", "torch.sqrt(((g - 1e-2 * w) ** 2).sum())")],
    # up and down in place of left and right
    "turned": [("torch.flip(images, (2,))", "torch.flip(images, (1,))")],
    # the momentum is the share of the new
    "late": [("EMA * v + (1 - EMA) * online[k]", "(1 - EMA) * v + EMA * online[k]")],
    # the newest are thrown out
    "written": [("torch.cat((queue[B:], keys))", "torch.cat((queue[:-B], keys))")],
}
