# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "bag_mean": [("summed / real.sum(1, keepdim=True)", "summed / tags.shape[1]")],
    "shifted": [
        (
            "wanted = torch.randint(N_ITEMS, (6,), generator=rng) + 1",
            "wanted = torch.randint(N_ITEMS, (6,), generator=rng)",
        ),
        ("log_q[wanted - 1]", "log_q[wanted]"),
    ],
    "popularity": [("- log_q[wanted - 1][None, :]", "+ log_q[wanted - 1][None, :]")],
    "sides": [('"bi,ij,bj->b"', '"bj,ij,bi->b"')],
    "accumulator": [("torch.full_like(net.table, 0.1)", "torch.zeros_like(net.table)")],
}
