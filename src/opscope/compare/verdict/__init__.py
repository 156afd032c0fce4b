# SPDX-License-Identifier: Apache-2.0
"""How far apart the tensors of a pair are, and whether that is too far."""
