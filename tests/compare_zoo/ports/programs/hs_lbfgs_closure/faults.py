# SPDX-License-Identifier: Apache-2.0
"""No faults: what a healthy port may look like."""

FAULTS = {}
