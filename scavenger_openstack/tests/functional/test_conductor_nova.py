# SPDX-License-Identifier: Apache-2.0

"""What a conductor does for Nova, on the databases of several conductors."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor import evicting_cases
from scavenger_openstack.tests.unit.conductor import flavor_tags_cases
from scavenger_openstack.tests.unit.conductor import reconciling_cases


class FlavorTagsOnMariaDb(flavor_tags_cases.FlavorTags, databases.MariaDb):
    pass


class FlavorTagsOnPostgreSql(flavor_tags_cases.FlavorTags,
                             databases.PostgreSql):
    pass


class EvictingOnMariaDb(evicting_cases.Evicting, databases.MariaDb):
    pass


class EvictingOnPostgreSql(evicting_cases.Evicting, databases.PostgreSql):
    pass


class TagsOnMariaDb(reconciling_cases.Tags, databases.MariaDb):
    pass


class TagsOnPostgreSql(reconciling_cases.Tags, databases.PostgreSql):
    pass


class ResumedOnMariaDb(reconciling_cases.Resumed, databases.MariaDb):
    pass


class ResumedOnPostgreSql(reconciling_cases.Resumed, databases.PostgreSql):
    pass


class ElsewhereOnMariaDb(reconciling_cases.Elsewhere, databases.MariaDb):
    pass


class ElsewhereOnPostgreSql(reconciling_cases.Elsewhere, databases.PostgreSql):
    pass
