# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "bands": [
        (
            "v[..., None, None, :] * (2.0 ** torch.arange(octaves))[:, None, None]",
            "v[..., None, None, :] * (2.0 ** torch.arange(octaves))[:, None]",
        ),
        (
            "phase + torch.tensor([0.0, torch.pi / 2])[:, None]",
            "phase + torch.tensor([0.0, torch.pi / 2])[:, None, None]",
        ),
    ],
    "skip": [("torch.cat([place, h], dim=-1)", "torch.cat([h, place], dim=-1)")],
    "feature": [
        ("h = h @ feature[0] + feature[1]", "h = torch.relu(h @ feature[0] + feature[1])"),
    ],
    "last": [("torch.full((COUNT, 1), 1e10)", "torch.full((COUNT, 1), DISTANT)")],
    "metric": [(" * ray.norm(dim=-1, keepdim=True)", "")],
    "seen": [
        ("torch.cumsum(thickness, dim=-1)[:, :-1]", "torch.cumsum(thickness, dim=-1)"),
        ("torch.nn.functional.pad(before, (1, 0))", "before"),
    ],
    "white": [("light + (1.0 - weight.sum(-1, keepdim=True))", "light")],
    "bins": [
        (
            "torch.lerp(edges[:-1], edges[1:], noise)",
            "even + (noise - 0.5) * (DISTANT - CLOSE) / (BINS - 1)",
        )
    ],
    "rate": [("((t - 1) / 10)", "(t / 10)")],
}
