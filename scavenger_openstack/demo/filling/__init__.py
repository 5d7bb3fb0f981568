# SPDX-License-Identifier: Apache-2.0

"""The first act: a service and batch work, in six ways."""
