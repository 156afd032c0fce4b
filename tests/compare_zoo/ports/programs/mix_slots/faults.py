# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "grid_span": [("torch.arange(W) / (W - 1)", "torch.arange(W) / W")],
    "compete_axis": [("torch.softmax(logit, 0)", "torch.softmax(logit, 2)")],
    "weighted_mean": [("pulled / share.sum(2).unsqueeze(-1)", "pulled / share.shape[2]")],
    "gru_state": [('recur(p, s + "gru", pulled, slots)', 'recur(p, s + "gru", pulled, normed)')],
    "slot_masks": [
        (
            "torch.exp(out[..., 3:] - torch.logsumexp(out[..., 3:], 0))",
            "torch.sigmoid(out[..., 3:])",
        )
    ],
}
