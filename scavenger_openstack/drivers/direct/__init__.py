# SPDX-License-Identifier: Apache-2.0

"""Which workload held a resource while another one waited for it."""
