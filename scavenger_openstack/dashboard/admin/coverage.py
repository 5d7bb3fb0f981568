# SPDX-License-Identifier: Apache-2.0

"""What the hosts can detect, measure and limit, below a list that is empty."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import rows


def sentence(request: Any) -> str:
    """Return whether nothing happened or nothing could be measured; '' where
    the user may not read the overview, or there is no answer."""
    try:
        overview = client.get(request, client.path_of('overview'))
    except client.Problem:
        return ''
    hosts = overview['overview']['hosts']
    if not hosts['all']:
        return _('No host has reported yet.')
    sentences = [ngettext(
        'Of %(hosts)d host %(reporting)d reports now',
        'Of %(hosts)d hosts %(reporting)d report now', hosts['all']) % {
            'hosts': hosts['all'],
            'reporting': hosts['all'] - hosts['silent']}]
    if hosts.get('undetecting'):
        sentences.append(_('no detector runs on %(hosts)s') % {
            'hosts': rows.counted_hosts(hosts['undetecting'])})
    if hosts.get('missing'):
        sentences.append(_(
            'not all is measured or limited (%(causes)s), the tab Hosts has '
            'the cure') % {'causes': ', '.join(
                _('%(resource)s on %(hosts)s') % {
                    'resource': resource, 'hosts': rows.counted_hosts(count)}
                for resource, count in hosts['missing'].items())})
    return f'{"; ".join(sentences)}.'
