# SPDX-License-Identifier: Apache-2.0

"""What the API reads and writes: a noun of its URLs each."""
