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


"""Migrations: one file for each version of the tables, run by alembic.

To change the tables: change ``db/tables.py``, add ``versions/rNNNN_what.py``
with the next number, ``down_revision`` the last one, and nothing imported
from ``db/tables.py``, which will change again.  MariaDB stores each change of
a table at once, so a file makes one change or finds out what is done already.
A test compares the result with ``db/tables.py`` on every database.
"""
