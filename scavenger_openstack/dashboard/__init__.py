# SPDX-License-Identifier: Apache-2.0

"""The Horizon plug-in: a Django application that Horizon loads.

Its pages ask the interference API with the token of the user who looks at
them; they keep nothing themselves.
"""
