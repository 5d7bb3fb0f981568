# SPDX-License-Identifier: Apache-2.0

"""Pictures as SVG, and pages of HTML that hold them."""
