# SPDX-License-Identifier: Apache-2.0

"""The program that restores limits, and its grammar: a closed set."""
