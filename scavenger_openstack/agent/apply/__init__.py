# SPDX-License-Identifier: Apache-2.0

"""The one place that writes limits."""
