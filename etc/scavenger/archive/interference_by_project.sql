-- SPDX-License-Identifier: Apache-2.0
-- For how long was each project disturbed, day by day?  For credits.
SELECT day, project, application, COUNT(DISTINCT victim) AS workloads,
       SUM(incidents) AS incidents,
       SUM(interference_s) / 60 AS interference_minutes
FROM victim_hours
GROUP BY day, project, application
ORDER BY day, interference_minutes DESC, project, application
