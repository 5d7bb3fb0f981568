# SPDX-License-Identifier: Apache-2.0

"""The control plane's database: its tables, and what is asked of them."""
