#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Thin stand-ins of the functions of devstack that its plugins use, and one
# run of a phase: PHASE...  What would change a machine is a line in $CALLS.
# shellcheck disable=SC2034

set -o errexit -o nounset -o pipefail

called() {
    echo "$*" >>"$CALLS"
}

is_service_enabled() {
    local name
    for name; do
        if [[ ",$ENABLED_SERVICES," == *",$name,"* ]]; then
            return 0
        fi
    done
    return 1
}

enable_service() { local name; for name; do ENABLED_SERVICES+=",$name"; done; }
get_python_exec_prefix() { echo "$BIN"; }
sudo() { "$@"; }
setup_develop() { called setup_develop "$@"; }
run_process() { called run_process "$@"; }
stop_process() { called stop_process "$@"; }
create_service_user() { called create_service_user "$@"; }
get_or_create_service() { called get_or_create_service "$@"; }
get_or_create_endpoint() { called get_or_create_endpoint "$@"; }
remove_uwsgi_config() { called remove_uwsgi_config "$@"; }
recreate_database() { called recreate_database "$@"; }
database_connection_url() { echo "${DATABASE_URL:-sqlite:///$DEST/$1.sqlite}"; }
get_transport_url() { echo "$TRANSPORT_URL"; }
which() { echo "$BIN/$1"; }

iniset() { "$PYTHON" "$INI" set "$@"; }
iniadd() { "$PYTHON" "$INI" add "$@"; }
iniget() { "$PYTHON" "$INI" get "$@"; }
iniget_multiline() { "$PYTHON" "$INI" get "$@"; }

# Without Apache, whose part is done by the last three lines, the first of
# them instead of "module = $2".
write_uwsgi_config() {
    called write_uwsgi_config "$@"
    cat >"$1" <<END
[uwsgi]
processes = 2
master = true
die-on-term = true
exit-on-reload = false
enable-threads = true
thunder-lock = true
buffer-size = 65535
add-header = Connection: close
lazy-apps = true
mount = $3=$2
manage-script-name = true
http-socket = 127.0.0.1:${SERVICE_HOST#*:}
END
}

iniset_rpc_backend() {
    iniset "$2" "${3:-DEFAULT}" transport_url "$(get_transport_url)"
    iniset "$2" oslo_messaging_notifications transport_url \
        "$(get_transport_url)"
}

configure_keystone_authtoken_middleware() {
    local section=${3:-keystone_authtoken}
    iniset "$1" "$section" auth_type password
    iniset "$1" "$section" interface public
    iniset "$1" "$section" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$1" "$section" username "$2"
    iniset "$1" "$section" password secret
    iniset "$1" "$section" user_domain_name Default
    iniset "$1" "$section" project_name service
    iniset "$1" "$section" project_domain_name Default
    if is_service_enabled memcached; then
        iniset "$1" "$section" memcached_servers localhost:11211
    fi
}

REGION_NAME=RegionOne
SERVICE_HOST=${SERVICE_HOST:-localhost}
SERVICE_PROTOCOL=http
KEYSTONE_SERVICE_URI=${KEYSTONE_SERVICE_URI:-http://localhost/identity}
TRANSPORT_URL=${TRANSPORT_URL:-rabbit://stackrabbit:secret@localhost:5672/}
STACK_USER=$(id -un)
ENABLE_DEBUG_LOG_LEVEL=True
NOVA_CONF=$DEST/nova.conf
NOVA_FILTERS=ComputeFilter,ImagePropertiesFilter

# shellcheck source=/dev/null
source "$PLUGIN/settings"
# shellcheck source=/dev/null
source "$PLUGIN/plugin.sh" "$@"
