# SPDX-License-Identifier: Apache-2.0

"""Parquet files of incidents, limits and sums that are over."""
