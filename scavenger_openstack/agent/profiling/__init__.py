# SPDX-License-Identifier: Apache-2.0

"""Measures profiles on this host, where the control plane asks for it."""
