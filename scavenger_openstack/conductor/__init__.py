# SPDX-License-Identifier: Apache-2.0

"""Takes the agents' reports, keeps them, and answers with directives."""
