# SPDX-License-Identifier: Apache-2.0
"""Five faults of the wav2vec port."""

NEEDS = ["transformers"]
FAULTS = {
    "ctc_mean": [("ctc(p, n, t) / len(t) for", "ctc(p, n, t) for")],
    "frame_zero": [("        x = x * keep[..., None]  # <- frame_zero\n", "")],
    "weight_norm_axis": [("norm(dim=(0, 1), keepdim=True)", "norm(dim=(1, 2), keepdim=True)")],
    "freeze": [("with torch.no_grad():", "with torch.enable_grad():")],
    "norm_padded": [("on = (torch.arange(wave.shape[1]) < lengths[:, None]).double()", "on = (torch.arange(wave.shape[1]) < lengths.max()).expand_as(wave).double()")],
}
