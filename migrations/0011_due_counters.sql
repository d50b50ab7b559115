-- +goose Up
-- Counters of kind due: how many open callbacks are due in an hour. The key is the hour's number since 1970, in six digits, so that the order
-- of keys is that of time. What is open is counted once, here; what an older process does beside this is not in them.
INSERT INTO counters (project, kind, key, value)
SELECT project, 'due', hour, COUNT(*)
FROM (
	SELECT project, CASE WHEN due_at < 3600000000000 THEN SUBSTR(CAST(1000000 + due_at / 3600000 AS TEXT), 2) ELSE '999999' END AS hour
	FROM callbacks
	WHERE state = 'scheduled'
) AS open_callbacks
GROUP BY project, hour;

-- Those of hours that have passed are taken away.
CREATE INDEX counters_due ON counters (key) WHERE kind = 'due';
