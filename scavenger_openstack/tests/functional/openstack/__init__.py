# SPDX-License-Identifier: Apache-2.0

"""A real OpenStack on this machine, for tests and for people.

Keystone, Placement, Glance, Nova and Horizon come from their packages, in a
virtual environment of their own (:mod:`.packages`).  They use a private
MariaDB and a private RabbitMQ, listen on loopback only, and their two
hypervisors are those of
:mod:`scavenger_openstack.tests.functional.hypervisor`.  There is no Neutron:
instances have no network.
"""
