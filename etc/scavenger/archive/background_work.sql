-- SPDX-License-Identifier: Apache-2.0
-- What did background work get of idle capacity, day by day?
SELECT day, COUNT(DISTINCT host) AS hosts,
       SUM(core_s) / 3600 AS core_hours,
       SUM(byte_s) / 1073741824 / 3600 AS gib_hours
FROM background_hours
GROUP BY day
ORDER BY day
