# SPDX-License-Identifier: Apache-2.0

"""Reports to a conductor, and what it wants of this host."""
