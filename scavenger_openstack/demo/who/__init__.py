# SPDX-License-Identifier: Apache-2.0

"""The second act: who disturbs which service?"""
