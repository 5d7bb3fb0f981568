# SPDX-License-Identifier: Apache-2.0

"""The panel of projects, and a tab on the page of an instance."""
