# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "clipped_relu": [("frames.clamp(0.0, 1.0)", "frames.clamp_min(0.0)")],
    "flip_back": [("self.behind.scan(frames.flip(0)).flip(0)", "self.behind.scan(frames.flip(0))")],
    "repeat_rule": [("(ext[2:] != BLANK) & (ext[2:] != ext[:-2])", "ext[2:] != BLANK")],
    "cmvn_axis": [("torch.var_mean(spec, dim=0)", "torch.var_mean(spec, dim=1, keepdim=True)")],
    "rate_decay": [("0.05 / (1 + 0.2 * step)", "0.05 * (1 - 0.2 * step)")],
}
