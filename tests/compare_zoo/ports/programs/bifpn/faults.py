# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "epsilon": [("momentum=0.99, epsilon=1e-3", "momentum=0.99, epsilon=1e-5")],
    "running": [("momentum=0.99, epsilon=1e-3", "momentum=0.9, epsilon=1e-3")],
    "positive": [("edge = torch.relu(self.weights)", "edge = self.weights")],
    "share": [
        ("edge = edge / (edge.sum() + 0.0001)", "edge = torch.softmax(edge, dim=0)"),
    ],
    "fused": [
        ("self.bn(self.conv(swish(fused)), training)", "self.bn(self.conv(fused), training)")
    ],
    "pooled": [
        (
            "return patches(x, 2, fill=-torch.inf).amax((-2, -1))",
            "return patches(x[:, 1:, 1:], 2, fill=-torch.inf).amax((-2, -1))",
        )
    ],
    "source": [("[c4, td4, shrunk(out3)]", "[td4, td4, shrunk(out3)]")],
    "anchors": [
        (
            "x = x.reshape(n, h * w * N_ANCHORS, self.outputs)",
            "x = x.reshape(n, h * w, self.outputs, N_ANCHORS).mT.flatten(1, 2)",
        )
    ],
    "alpha": [("torch.where(truth > 0, 0.25, 0.75)", "torch.where(truth > 0, 0.75, 0.25)")],
    "huber": [("huber = near * (off - 0.5 * near)", "huber = near * (off - 0.5 * near) / 0.1")],
}
