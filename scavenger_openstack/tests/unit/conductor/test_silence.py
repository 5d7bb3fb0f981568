# SPDX-License-Identifier: Apache-2.0

"""Hosts that fall silent."""

from __future__ import annotations

from oslo_config import cfg

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack import conf as conf_
from scavenger_openstack import rpc
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.silence_cases import Silence


OUTAGE_S = 60.0


class OnSqlite(Silence, cloud.Sqlite):

    def test_no_host_is_silent_after_an_outage_of_a_minute(self) -> None:
        """It begins when a report is due; the last call that fails lasts,
        and the wait after it is the longest."""
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        sync_s = conf.conductor.sync_s
        for timeout_s in (rpc.TIMEOUT_S, https.TIMEOUT_S):
            for silent_s in (conf.api.silent_s, conf.placement.silent_s):
                self.assertLess(sync_s + OUTAGE_S + timeout_s
                                + sync.MOST_WAIT * sync_s, silent_s)
