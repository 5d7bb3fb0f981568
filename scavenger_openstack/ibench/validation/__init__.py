# SPDX-License-Identifier: Apache-2.0

"""Whether each SoI does to its resource what its intensity says."""
