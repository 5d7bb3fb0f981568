# SPDX-License-Identifier: Apache-2.0

"""Interfaces of the kernel: files, netlink, counters, tracing."""
