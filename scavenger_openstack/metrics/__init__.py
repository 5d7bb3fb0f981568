# SPDX-License-Identifier: Apache-2.0

"""The description of metrics, and the listener that serves them."""
