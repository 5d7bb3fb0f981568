# SPDX-License-Identifier: Apache-2.0

"""Which reports and tags a conductor takes, before it stores them."""
