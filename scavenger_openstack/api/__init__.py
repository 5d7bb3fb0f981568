# SPDX-License-Identifier: Apache-2.0

"""The REST API of the control plane, service type ``interference``."""
