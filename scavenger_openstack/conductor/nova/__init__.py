# SPDX-License-Identifier: Apache-2.0

"""What the conductor learns from Nova about instances, and has it do."""
