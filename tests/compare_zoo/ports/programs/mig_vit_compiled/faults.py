# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the kernel's channels stay before its rows and columns
    "patches": [('old["patch_embed.weight"].permute(0, 2, 3, 1)', 'old["patch_embed.weight"]')],
    "layer_scale": [('ls{n}"] for n in (1, 2)]', 'ls{n}"] for n in (1, 1)]')],
    # read as BGR
    "colours": [
        ("torch.tensor([0.485, 0.456, 0.406])", "torch.tensor([0.406, 0.456, 0.485])"),
        ("torch.tensor([0.229, 0.224, 0.225])", "torch.tensor([0.225, 0.224, 0.229])"),
    ],
    # what is smoothed away goes to the other classes only
    "smoothing": [
        (
            "F.one_hot(labels, N_CLASSES) * 0.9 + 0.1 / N_CLASSES",
            "(F.one_hot(labels, N_CLASSES) * (0.9 - 0.1 / (N_CLASSES - 1)) + 0.1 / (N_CLASSES - 1))",
        )
    ],
    # the gradients of the halves are added, not their mean taken
    "gathered": [("(loss * 0.5).backward()", "loss.backward()")],
}
