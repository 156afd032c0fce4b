# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of speech."""

FAULTS = {
    "group_axis": [('standardise(x, 1, p["gn.weight"]', 'standardise(x, 2, p["gn.weight"]')],
    "pos_trim": [("left, right = k // 2, k - 1 - k // 2", "left, right = k - 1 - k // 2, k // 2")],
    "feature_grad": [("0.1 * x + 0.9 * x.detach()", "0.9 * x + 0.1 * x.detach()")],
    "temperature": [("/ temp", "* temp")],
    "skip_self": [("torch.where(draws < me, draws, draws + 1)", "torch.where(draws < me, draws, draws)")],
}
