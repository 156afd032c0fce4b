# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "leak_slope": [("torch.where(e > 0, e, 0.2 * e)", "torch.where(e > 0, e, 0.01 * e)")],
    "neighbour_axis": [("torch.softmax(e, dim=2)", "torch.softmax(e, dim=1)")],
    "self_loops": [("sends_to.T | torch.eye(NODES, dtype=torch.bool)", "sends_to.T")],
    "feature_norm": [
        ("feats.abs().sum(dim=1, keepdim=True)", "feats.abs().sum(dim=0, keepdim=True)")
    ],
    "decay_group": [("(second.params(), 0.0)", "(second.params(), 5e-2)")],
}
