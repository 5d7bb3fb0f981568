# SPDX-License-Identifier: Apache-2.0


"""Migrations: one file for each version of the tables, run by alembic.

To change the tables: change ``db/tables.py``, add ``versions/rNNNN_what.py``
with the next number, ``down_revision`` the last one, and nothing imported
from ``db/tables.py``, which will change again.  MariaDB stores each change of
a table at once, so a file makes one change or finds out what is done already.
A test compares the result with ``db/tables.py`` on every database.  The first
number is 0012: lower ones name other tables, from before the first release.
"""
