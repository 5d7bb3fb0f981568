# SPDX-License-Identifier: Apache-2.0


"""A simulated host: a driver and a clock in one.

``machine`` and ``scenario`` say what is simulated, ``plant`` moves it on,
``driver`` stands where the driver of a real host stands.
"""
