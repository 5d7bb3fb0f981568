# SPDX-License-Identifier: Apache-2.0

"""Where metrics are served, by agents and by the control plane."""
