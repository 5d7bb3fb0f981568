# SPDX-License-Identifier: Apache-2.0

"""From rates to the limits that are wanted: pure, no paper of its own."""
