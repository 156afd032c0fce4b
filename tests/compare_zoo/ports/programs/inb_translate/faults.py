# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of translate."""

FAULTS = {
    "table": [("torch.cat((angle.sin(), angle.cos()), -1)",
               "torch.stack((angle.sin(), angle.cos()), -1).flatten(1)")],
    "crossmask": [("self.cross_kv[i], self.cross_keep)", "self.cross_kv[i])")],
    "embedscale": [("x = F.embedding(token, self.table) * math.sqrt(D)",
                    "x = F.embedding(token, self.table)")],
    "offset": [("self.places[step]", "self.places[step + 1]")],
    "finished": [("words += alive", "words += 1")],
}
