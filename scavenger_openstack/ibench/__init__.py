# SPDX-License-Identifier: Apache-2.0

"""Sources of interference with a tunable intensity, one for each resource.

Source: iBench (Delimitrou and Kozyrakis, IISWC 2013), sections III and IV.
"""
