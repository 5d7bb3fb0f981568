# SPDX-License-Identifier: Apache-2.0

"""What interference a workload tolerates, and what it causes.

Source: iBench, sections III, IV-B and V-A.
"""
