# SPDX-License-Identifier: Apache-2.0

"""Admin > Compute > Interference."""

PANEL = 'interference'
PANEL_DASHBOARD = 'admin'
PANEL_GROUP = 'compute'
ADD_PANEL = 'scavenger_openstack.dashboard.admin.panel.Interference'
ADD_INSTALLED_APPS = ['scavenger_openstack.dashboard']
ADD_JS_FILES = ['interference/refresh.js']
ADD_SCSS_FILES = ['interference/interference.scss']
