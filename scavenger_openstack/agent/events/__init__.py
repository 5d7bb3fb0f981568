# SPDX-License-Identifier: Apache-2.0

"""The events of this host: logged, stored and reported."""
