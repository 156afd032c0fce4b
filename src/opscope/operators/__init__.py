# SPDX-License-Identifier: Apache-2.0
"""The one catalogue of operators: what is known of each, in whatever world it is spelled
(docs/operators.md).
"""
