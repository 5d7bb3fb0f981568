# SPDX-License-Identifier: Apache-2.0

"""Version 1 of the API: its proxy, and a class for each of its nouns."""
