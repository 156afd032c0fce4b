# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the mean is taken away as it is
    "folded": [('saved[f"{bn}.running_mean"] * factor', 'saved[f"{bn}.running_mean"]')],
    # the stride in the first convolution, as in the first ResNet
    "stride": [
        ("self.reduce = ConvAct(cin, mid, 1)", "self.reduce = ConvAct(cin, mid, 1, stride=2)"),
        ("ConvAct(mid, mid, 3, stride=2)", "ConvAct(mid, mid, 3)"),
    ],
    # the zeros at the edge count
    "edge": [("nn.functional.avg_pool2d(x, 2) / count", "nn.functional.avg_pool2d(x, 2)")],
    # labels and images are not mixed with the same part
    "mixed": [("torch.lerp(soft[pair], soft, lam)", "torch.lerp(soft, soft[pair], lam)")],
    # the rate is within the velocity, as in Keras
    "velocity": [
        ("v.mul_(0.9).add_(g)", "v.mul_(0.9).add_(lr * g)"),
        ("p.sub_(lr * v)", "p.sub_(v)"),
    ],
}
