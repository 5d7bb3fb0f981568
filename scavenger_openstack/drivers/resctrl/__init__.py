# SPDX-License-Identifier: Apache-2.0

"""What the kernel monitors of last-level caches and memory buses."""
