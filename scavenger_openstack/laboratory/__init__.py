# SPDX-License-Identifier: Apache-2.0


"""The laboratory: the agent's loop on simulated hosts and on recordings."""
