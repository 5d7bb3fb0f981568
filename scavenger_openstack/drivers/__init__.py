# SPDX-License-Identifier: Apache-2.0

"""The drivers that read a host and limit it: their contract, and parts."""
