# SPDX-License-Identifier: Apache-2.0

"""Project > Compute > Was my instance disturbed?, and a tab of instances."""
