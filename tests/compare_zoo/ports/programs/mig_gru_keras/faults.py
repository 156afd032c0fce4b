# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "order": [("return torch.cat((z, r, n))", "return torch.cat((r, z, n))")],
    # the state goes on over the padding
    "skipped": [("torch.where(mask[:, t, None], new, h)", "new")],
    # the mask the other way round
    "attended": [("(1.0 - mask.float()) * -1e9", "mask.float() * -1e9")],
    # the word to be told is given
    "forced": [("pad(target, (1, 0), value=1)[:, :-1]", "target")],
    # the mean over all places, padding too
    "per_word": [("/ counted.sum()", "/ counted.numel()")],
}
