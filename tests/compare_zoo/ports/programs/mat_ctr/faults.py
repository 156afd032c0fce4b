# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "bag_mean": [("emb = summed[..., :K] / sizes[..., None]", "emb = summed[..., :K]")],
    "fm_half": [("pairwise = 0.5 * (s.square()", "pairwise = (s.square()")],
    "cross_base": [("torch.ones_like(w)) * base + b", "torch.ones_like(w)) * state + b")],
    "positive_weight": [
        (
            "nll = -(pos * y * torch.log(p) + (1 - y) * torch.log(1 - p))",
            "nll = -(y * torch.log(p) + pos * (1 - y) * torch.log(1 - p))",
        )
    ],
    "adagrad_start": [
        ("accumulator = torch.full_like(table, 0.1)", "accumulator = torch.zeros_like(table)")
    ],
}
