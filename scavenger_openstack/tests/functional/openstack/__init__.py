# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A real OpenStack on this machine, for tests and for people.

Keystone, Placement, Glance and Nova come from their packages, in a virtual
environment of their own (:mod:`.packages`).  They use a private MariaDB and
a private RabbitMQ, listen on loopback only, and their two hypervisors are
those of :mod:`scavenger_openstack.tests.functional.hypervisor`.  There is no
Neutron: instances have no network.
"""
