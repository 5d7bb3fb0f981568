# SPDX-License-Identifier: Apache-2.0

"""What is taken of whom, before it is stored."""
