# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "window": [("np.cos(2 * np.pi * n / WIN)", "np.cos(2 * np.pi * n / (WIN - 1))")],
    "feature_axis": [
        ("torch.std_mean(lm, dim=1, keepdim=True)", "torch.std_mean(lm, dim=2, keepdim=True)")
    ],
    "backward_direction": [
        ("torch.cat([ahead, back.flip(1)], -1)", "torch.cat([ahead, back], -1)")
    ],
    "repeat_skip": [("if s > 1 and c != 0 and c != ext[s - 2]:", "if s > 1 and c != 0:")],
    "global_clip": [("d * shrink", "d.clamp(-1.0, 1.0)")],
}
