# SPDX-License-Identifier: Apache-2.0

"""Algorithms of the papers: values and the time in, values out."""
