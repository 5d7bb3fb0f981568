# SPDX-License-Identifier: Apache-2.0


"""Private database servers and brokers for tests.

Each is started at most once by a test process, on a unix socket or loopback,
below a directory of its own, and is gone with the process, however it ends.
"""
