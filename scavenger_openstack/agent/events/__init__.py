# SPDX-License-Identifier: Apache-2.0

"""What happened on this host: logged, kept on disk, and reported."""
