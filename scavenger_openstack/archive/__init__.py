# SPDX-License-Identifier: Apache-2.0

"""The archive of what is over."""
