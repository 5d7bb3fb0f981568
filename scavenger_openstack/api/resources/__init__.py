# SPDX-License-Identifier: Apache-2.0

"""What the API shows and changes: a noun of its URLs each."""
