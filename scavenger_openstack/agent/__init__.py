# SPDX-License-Identifier: Apache-2.0

"""The agent of one host: its loops, leases, status and history."""
