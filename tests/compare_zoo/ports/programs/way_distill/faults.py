# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "fold_eps": [('running_var"] + 1e-5)', 'running_var"] + 1e-3)')],
    "strided": [("i + 1, 1, 1, x.shape[1])", "i + 1, i + 1, i + 1, x.shape[1])")],
    "gate": [("(F.relu6(scale + 3) / 6)", "torch.sigmoid(scale)")],
    "smoothing": [("0.9 * y + 0.1 / N_CLASSES", "0.9 * y + 0.1 * (1 - y) / (N_CLASSES - 1)")],
    "batchmean": [("(wanted - log_hot)).sum(1)", "(wanted - log_hot)).mean(1)")],
    "averaging": [("/ (epoch + 1)", "* 0.01")],
}
