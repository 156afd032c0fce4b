# SPDX-License-Identifier: Apache-2.0
"""Mistakes of writing a conformer and its CTC by hand."""

FAULTS = {
    "rel_sign": [("index = (cols - rows)", "index = (rows - cols)")],
    "out_length": [("torch.div(lengths + 3, 4,", "torch.div(lengths, 4,")],
    "ctc_skip": [("(states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])", "states[:, 2:] != 0")],
    "ctc_norm": [("(nll / n_labels).mean()", "nll.sum() / n_labels.sum()")],
    "nesterov": [("w -= 0.05 * (g + 0.9 * velocity[name])", "w -= 0.05 * velocity[name]")],
}
