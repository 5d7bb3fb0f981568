# SPDX-License-Identifier: Apache-2.0

"""What plays in a demo: the C programs, and how they are run."""
