-- SPDX-License-Identifier: Apache-2.0
-- What would have been named with another threshold of the score?  CPI2,
-- section 5.  Precision is of the incidents whose limit was judged.
SELECT t.threshold, COUNT(DISTINCT i.uuid) AS incidents,
       COUNT(*) AS suspects,
       COUNT(DISTINCT CASE WHEN i.outcome = 'confirmed' THEN i.uuid END)
         AS confirmed,
       COUNT(DISTINCT CASE WHEN i.outcome = 'refuted' THEN i.uuid END)
         AS refuted
FROM (VALUES (0.25), (0.35), (0.45), (0.55)) AS t(threshold)
JOIN suspects s ON s.score >= t.threshold
JOIN incidents i ON i.uuid = s.incident AND i.day = s.day
GROUP BY t.threshold
ORDER BY t.threshold
