# SPDX-License-Identifier: Apache-2.0
"""Statistics of tensors that lie on an accelerator. Nothing here imports a framework: the torch
module is handed in.

Small tensors need nothing of this: they are copied to the host in stream order and read by the
host's kernels (record/torch/staging.py). `lean` reads large ones by plain tensor operators where no
kernel of our own can be had.
"""
