# SPDX-License-Identifier: Apache-2.0

"""CPU blind isolation: the fast loop, and its part in the slow one."""
