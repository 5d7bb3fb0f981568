# SPDX-License-Identifier: Apache-2.0

"""Project > Compute > Was my instance disturbed?, and a tab of instances."""

PANEL = 'disturbances'
PANEL_DASHBOARD = 'project'
PANEL_GROUP = 'compute'
ADD_PANEL = 'scavenger_openstack.dashboard.project.panel.Disturbances'
EXTRA_TABS = {
    'openstack_dashboard.dashboards.project.instances.tabs.'
    'InstanceDetailTabs': (
        'scavenger_openstack.dashboard.project.instance_tab.Disturbed',),
    'openstack_dashboard.dashboards.admin.instances.tabs.'
    'AdminInstanceDetailTabs': (
        'scavenger_openstack.dashboard.project.instance_tab.'
        'DisturbedOfAll',),
}
