# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the places run on from sentence to sentence, as far as the table goes
    "positions": [
        (
            "torch.cat([torch.arange(n) for n in lengths])",
            "torch.arange(sum(lengths)) % LONGEST",
        )
    ],
    # the bounds of sentences are not passed on
    "documents": [("[0, *torch.tensor(lengths).cumsum(0).tolist()]", "[0, sum(lengths)]")],
    # the parts of attention are kept in half precision
    "half": [
        (
            "torch.exp(score - score.logsumexp(-1, keepdim=True))",
            "torch.exp(score - score.logsumexp(-1, keepdim=True)).bfloat16().float()",
        )
    ],
    # a bias is not found in the checkpoint and nobody is told
    "left_out": [('"bias": old.pop("decoder_bias")}', '"decoder.bias": old.pop("decoder_bias")}')],
    # the schedule ends too late
    "decayed": [("1.0, 0.0, total_iters=4)", "1.0, 0.0, total_iters=40)")],
}
