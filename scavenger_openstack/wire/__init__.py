# SPDX-License-Identifier: Apache-2.0

"""What goes over the wire between agents and the control plane."""
