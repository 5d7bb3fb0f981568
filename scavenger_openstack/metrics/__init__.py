# SPDX-License-Identifier: Apache-2.0

"""What describes metrics, and the listener that serves them."""
