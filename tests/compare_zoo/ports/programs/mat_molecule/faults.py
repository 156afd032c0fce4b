# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "direction": [
        (
            '(h @ p["send"])[:, None, :, :] + (h @ p["recv"])[:, :, None, :]',
            '(h @ p["send"])[:, :, None, :] + (h @ p["recv"])[:, None, :, :]',
        )
    ],
    "neighbour_norm": [
        ("torch.softmax(score, dim=2) * linked", "torch.softmax(score, dim=1) * linked")
    ],
    "softplus": [
        (
            "torch.logaddexp(2 * pre[..., :W], torch.zeros(())) / 2",
            "torch.logaddexp(pre[..., :W], torch.zeros(()))",
        )
    ],
    "batch_rows": [("rows = state[real]", "rows = state.flatten(0, 1)")],
    "adam_bias": [("second[k].sqrt() / unbias + 1e-3", "second[k].sqrt() + 1e-3")],
}
