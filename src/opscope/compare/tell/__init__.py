# SPDX-License-Identifier: Apache-2.0
"""What is said of a comparison: findings, summary, its rows with their records."""
