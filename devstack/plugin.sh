#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Installs the project on a devstack host and starts it: API and conductor
# beside the other services, agent and watcher on each hypervisor.  They run
# as devstack's user here, agent and watcher as root; etc/systemd has the
# units for production.

# devstack defines and sources what is used here.
# shellcheck disable=SC2154

function install_scavenger {
    local extras=
    if is_service_enabled scavenger-api scavenger-conductor; then
        extras=control,osc
    elif is_service_enabled scavenger-agent; then
        extras=rpc
    fi
    if is_service_enabled scavenger-agent && is_service_enabled n-cpu; then
        extras=${extras:+$extras,}libvirt
    fi
    if is_service_enabled horizon; then
        extras=${extras:+$extras,}dashboard
    fi
    setup_develop "$SCAVENGER_DIR" "$extras"
}

# The panels: what is enabled, and the static files of all of Horizon again.
function configure_scavenger_dashboard {
    local command
    cp -a "$SCAVENGER_DIR"/scavenger_openstack/dashboard/enabled/_[0-9]*.py \
        "$HORIZON_DIR/openstack_dashboard/local/enabled/"
    for command in 'collectstatic --noinput' 'compress --force'; do
        # shellcheck disable=SC2086
        DJANGO_SETTINGS_MODULE=openstack_dashboard.settings \
            "$PYTHON" "$HORIZON_DIR/manage.py" $command
    done
}

function configure_scavenger {
    sudo install -d -o "$STACK_USER" "$SCAVENGER_CONF_DIR"
    rm -f "$SCAVENGER_CONF"
    iniset "$SCAVENGER_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset_rpc_backend scavenger "$SCAVENGER_CONF" DEFAULT
    if is_service_enabled scavenger-agent; then
        iniset "$SCAVENGER_CONF" DEFAULT state_dir "$SCAVENGER_STATE_DIR"
        iniset "$SCAVENGER_CONF" cgroups background_parents \
            "$SCAVENGER_BACKGROUND_PARENTS"
        iniset "$SCAVENGER_CONF" scavenger mode "$SCAVENGER_MODE"
        iniset "$SCAVENGER_CONF" conductor enabled True
    fi
    if is_service_enabled scavenger-api scavenger-conductor; then
        configure_scavenger_control
    fi
}

# What has the database and credentials.
function configure_scavenger_control {
    iniset "$SCAVENGER_CONF" database connection \
        "$(database_connection_url scavenger)"
    configure_keystone_authtoken_middleware "$SCAVENGER_CONF" scavenger
    iniset "$SCAVENGER_CONF" keystone_authtoken www_authenticate_uri \
        "$KEYSTONE_SERVICE_URI"
    iniset "$SCAVENGER_CONF" openstack auth_section keystone_authtoken
    iniset "$SCAVENGER_CONF" openstack region_name "$REGION_NAME"
    iniset "$SCAVENGER_CONF" nova enabled True
    iniset "$SCAVENGER_CONF" placement enabled True
    write_uwsgi_config "$SCAVENGER_UWSGI_CONF" \
        scavenger_openstack.wsgi.api:application /interference "" \
        scavenger-api
    iniset "$SCAVENGER_UWSGI_CONF" uwsgi env \
        "SCAVENGER_CONFIG_FILE=$SCAVENGER_CONF"
}

# What runs inside Nova: validator, filter, weigher and notifier.
function configure_scavenger_nova {
    local filters
    filters=$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)
    filters=${filters:-$NOVA_FILTERS}
    if [[ ,$filters, != *,BackgroundFilter,* ]]; then
        iniset "$NOVA_CONF" filter_scheduler enabled_filters \
            "$filters,BackgroundFilter"
    fi
    scavenger_add_to_nova filter_scheduler available_filters \
        nova.scheduler.filters.all_filters \
        scavenger_openstack.nova.filters.BackgroundFilter
    scavenger_add_to_nova filter_scheduler weight_classes \
        nova.scheduler.weights.all_weighers \
        scavenger_openstack.nova.weights.InterferenceWeigher
    scavenger_add_to_nova oslo_messaging_notifications driver scavenger
    configure_keystone_authtoken_middleware "$NOVA_CONF" scavenger scavenger
    iniset "$NOVA_CONF" scavenger region_name "$REGION_NAME"
    # The cell of nova-compute may have another virtual host.
    iniset "$NOVA_CONF" scavenger transport_url "$(get_transport_url)"
}

# Add values that an option does not have yet.
function scavenger_add_to_nova {
    local section=$1 option=$2 value
    shift 2
    for value; do
        if [[ " $(iniget_multiline "$NOVA_CONF" "$section" "$option") " \
                != *" $value "* ]]; then
            iniadd "$NOVA_CONF" "$section" "$option" "$value"
        fi
    done
}

function init_scavenger {
    recreate_database scavenger
    "$SCAVENGER_BIN_DIR/scavenger-manage" --config-file "$SCAVENGER_CONF" \
        db upgrade
    create_service_user scavenger admin
    get_or_create_service scavenger interference "Interference service"
    get_or_create_endpoint interference "$REGION_NAME" \
        "$SERVICE_PROTOCOL://$SERVICE_HOST/interference"
}

function start_scavenger {
    if is_service_enabled scavenger-api; then
        run_process scavenger-api "$(which uwsgi) \
            --procname-prefix scavenger-api --ini $SCAVENGER_UWSGI_CONF"
    fi
    if is_service_enabled scavenger-conductor; then
        run_process scavenger-conductor \
            "$SCAVENGER_BIN_DIR/scavenger-conductor \
            --config-file $SCAVENGER_CONF"
    fi
    if is_service_enabled scavenger-agent; then
        run_process scavenger-restore \
            "$SCAVENGER_BIN_DIR/scavenger-restore --watch \
            --state-dir $SCAVENGER_STATE_DIR" root root
        run_process scavenger-agent "$SCAVENGER_BIN_DIR/scavenger-agent run \
            --config-file $SCAVENGER_CONF" root root
    fi
}

function create_scavenger_flavors {
    # shellcheck disable=SC2086
    "$SCAVENGER_BIN_DIR/scavenger-manage" --config-file "$SCAVENGER_CONF" \
        flavors create --public --disk 1 $SCAVENGER_FLAVORS
}

# The agent removes its limits when it ends; the watcher outlives it.  Of an
# agent that was killed the rest is restored here.
function stop_scavenger {
    local service
    for service in agent restore conductor api; do
        if is_service_enabled "scavenger-$service"; then
            stop_process "scavenger-$service"
        fi
    done
    if is_service_enabled scavenger-agent && \
            [[ -x $SCAVENGER_BIN_DIR/scavenger-restore ]]; then
        sudo "$SCAVENGER_BIN_DIR/scavenger-restore" \
            --state-dir "$SCAVENGER_STATE_DIR" \
            || echo "scavenger-restore: see which limits are left"
    fi
}

function clean_scavenger {
    local file
    if is_service_enabled scavenger-api scavenger-conductor; then
        remove_uwsgi_config "$SCAVENGER_UWSGI_CONF" scavenger-api
    fi
    if is_service_enabled horizon; then
        for file in \
                "$SCAVENGER_DIR"/scavenger_openstack/dashboard/enabled/_[0-9]*
        do
            rm -f "$HORIZON_DIR/openstack_dashboard/local/enabled/${file##*/}"
        done
    fi
    sudo rm -rf "$SCAVENGER_CONF_DIR" "$SCAVENGER_STATE_DIR"
    if [[ $SCAVENGER_STATE_DIR == /run/scavenger ]]; then
        sudo rm -rf /var/lib/scavenger
    fi
}

if is_service_enabled scavenger-api scavenger-conductor scavenger-agent; then
    if [[ "$1" == "stack" && "$2" == "install" ]]; then
        install_scavenger
    elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
        configure_scavenger
        if is_service_enabled nova; then
            configure_scavenger_nova
        fi
        if is_service_enabled scavenger-api scavenger-conductor; then
            init_scavenger
        fi
        if is_service_enabled horizon; then
            configure_scavenger_dashboard
        fi
    elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
        start_scavenger
        if is_service_enabled scavenger-conductor && \
                is_service_enabled n-api; then
            create_scavenger_flavors
        fi
    elif [[ "$1" == "unstack" ]]; then
        stop_scavenger
    elif [[ "$1" == "clean" ]]; then
        clean_scavenger
    fi
fi
