# SPDX-License-Identifier: Apache-2.0

"""Recordings: what their lines mean, and a driver that plays one back."""
