# SPDX-License-Identifier: Apache-2.0
"""Calls of a run made again from their recorded inputs, judged against trusted substitutes. Called,
it answers: see replay.api.
"""
