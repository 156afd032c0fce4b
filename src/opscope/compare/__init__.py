# SPDX-License-Identifier: Apache-2.0
"""Where two runs part, and which call made them. Called, the room answers: see compare.api.

Data flows one way: side (one run as columns) -> pair (what belongs together) -> verdict (whether it
is too far apart) -> cause (which call began it) -> tell (findings and words).
"""
