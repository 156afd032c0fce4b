# SPDX-License-Identifier: Apache-2.0
"""What every question to a run is made of: its tables, the rows that matter, differences of
arguments, findings.
"""
