# SPDX-License-Identifier: Apache-2.0
"""Statistics of tensors that lie on an accelerator. Nothing here imports a framework: the torch
module is handed in.

Small tensors need nothing of this: they are copied to the host in stream order and read by the
host's kernels (record/torch/staging.py). Large ones are read by one kernel (`fused`, in
Triton) where that has a back end for the device, by plain tensor operators (`lean`) elsewhere.
"""
