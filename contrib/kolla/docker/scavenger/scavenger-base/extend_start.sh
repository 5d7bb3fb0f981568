#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Sourced by kolla_start, before the command of the container.
mkdir -p /var/log/kolla/scavenger

# kolla-ansible sets it, to nothing, for the container that makes the tables.
if [[ -v KOLLA_BOOTSTRAP ]]; then
    scavenger-manage db upgrade
    exit 0
fi
