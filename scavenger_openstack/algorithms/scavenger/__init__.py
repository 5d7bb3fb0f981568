# SPDX-License-Identifier: Apache-2.0

"""Scavenger: give away what the foreground does not use."""
