#!/bin/bash
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

# Installs the agent and its watcher on a devstack host and starts them.
# They run as root here; etc/systemd has the units for production.

function install_scavenger {
    setup_develop "$SCAVENGER_DIR"
}

function configure_scavenger {
    sudo install -d -o "$STACK_USER" "$SCAVENGER_CONF_DIR"
    iniset "$SCAVENGER_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset "$SCAVENGER_CONF" cgroups background_parents \
        "$SCAVENGER_BACKGROUND_PARENTS"
    iniset "$SCAVENGER_CONF" scavenger mode "$SCAVENGER_MODE"
}

function start_scavenger {
    run_process scavenger-restore \
        "$(get_python_exec_prefix)/scavenger-restore --watch" root root
    run_process scavenger-agent \
        "$(get_python_exec_prefix)/scavenger-agent run \
        --config-file $SCAVENGER_CONF" root root
}

# The agent removes its limits when it ends; the watcher outlives it.
function stop_scavenger {
    stop_process scavenger-agent
    stop_process scavenger-restore
}

if is_service_enabled scavenger-agent; then
    if [[ "$1" == "stack" && "$2" == "install" ]]; then
        install_scavenger
    elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
        configure_scavenger
    elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
        start_scavenger
    elif [[ "$1" == "unstack" ]]; then
        stop_scavenger
    elif [[ "$1" == "clean" ]]; then
        sudo rm -f "$SCAVENGER_CONF"
    fi
fi
