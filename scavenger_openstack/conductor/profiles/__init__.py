# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: measured on request, and estimated."""
