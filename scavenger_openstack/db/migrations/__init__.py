# SPDX-License-Identifier: Apache-2.0


"""Migrations: one file for each version of the tables, run by alembic.

Until the first release the only one makes the tables that ``db/tables.py``
declares.  After it, to change the tables: copy what ``db/tables.py`` declares
into ``r0012_tables.py``, change ``db/tables.py``, add
``versions/rNNNN_what.py`` with the next number, ``down_revision`` the last
one.  Beside a second migration none may import ``db/tables.py``, which will
change again; a test says so.  MariaDB stores each change of a table at once,
so a file makes one change or finds out what is done already.  Another test
compares the result with ``db/tables.py`` on every database.  The first number
is 0012: lower ones name other tables, from before the first release.
"""
