# SPDX-License-Identifier: Apache-2.0

"""What reads and sets a host: the contract of a driver, and its parts."""
