# SPDX-License-Identifier: Apache-2.0

"""What WSGI servers load."""
