# SPDX-License-Identifier: Apache-2.0

"""CPI2: what suffers, by its CPI, and what disturbs it."""
