-- Fills a database of tests with 60,000 rows in each large table: callbacks, audit entries, activity and so
-- on. The rows belong to two projects, a hundred lanes, a thousand lock keys and a few dozen causes of death.
-- One third of the callbacks is open, and a few of these are due. Every thirtieth callback is dead. Half of
-- the attempts belong to one callback.

INSERT INTO callbacks (id, project, kind, lane, lock_key, state, due_at, updated_at,
		finished_at, timeout_ms, trigger, reason, last_class, last_status, strict, payload)
	SELECT '01' || SUBSTR(CAST(1000000000 + i AS TEXT), 2) || 'ABCDEFGHJKMNPQR',
		CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END,
		CASE WHEN i % 200 = 7 THEN 'poll' ELSE 'notify' END, 1 + i % 100,
		CASE WHEN i % 5 < 2 THEN 'lock-' || CAST(i % 1000 AS TEXT) ELSE '' END,
		CASE WHEN i % 3 = 0 THEN 'scheduled' WHEN i % 30 = 1 THEN 'dead' ELSE 'succeeded' END,
		CASE WHEN i % 3 = 0 THEN 1790000000000 - 600000 + i * 1000 ELSE 0 END, 1,
		CASE WHEN i % 3 = 0 THEN 0 ELSE 1 END, 1000, 'schedule',
		CASE WHEN i % 30 = 1 THEN 'exhausted' ELSE '' END,
		CASE WHEN i % 30 = 1 THEN 'class-' || CAST(i % 7 AS TEXT) ELSE '' END,
		CASE WHEN i % 30 = 1 THEN 500 + i % 4 ELSE 0 END, 0, 0
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO requests (id, project, url, method, topic, ref, endpoint_id, first_due_at,
		created_at, content_type, signer, headers, labels, policy, success, follows, sealed_key, shared,
		created_by, body)
	SELECT '01' || SUBSTR(CAST(1000000000 + i AS TEXT), 2) || 'ABCDEFGHJKMNPQR',
		CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END, 'https://a.example', 'GET', '', '', '', 1, 1,
		'', '', '', '', '{}', '{}', 0, '', '', '', CAST(REPEAT('x', 512) AS BYTEA)
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO audit (id, project, at, actor, action, object, reason, detail, address,
		before, after, seq)
	SELECT '01' || SUBSTR(CAST(1000000000 + i AS TEXT), 2) || 'ABCDEFGHJKMNPQR',
		CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END, i, 'key_ops',
		'callback.retry', 'object-' || CAST(i % 5000 AS TEXT), '', '', '', '', '', i
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO dispatchers (name, host, version, roles, workers, in_flight, held, draining, clock_offset,
		started_at, seen_at)
	SELECT CAST(i AS TEXT), '', '', '', 1, 1, 0, 0, 0, i, i FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO schedules (id, project, name, cron, timezone, template, missed, enabled, next_at, created_at,
		updated_at)
	SELECT CAST(i AS TEXT), 'default', CAST(i AS TEXT), '', '', '', '', 1, i / 2, 1, 1
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO sessions (token, data, expires_at)
	SELECT CAST(i AS TEXT), CAST('x' AS BYTEA), i FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO counters (project, kind, key, value)
	SELECT CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END,
		CASE WHEN i % 3 = 0 THEN 'due' ELSE 'lane' END, CAST(400000 + i AS TEXT), 1
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO attempts (callback_id, number, charged, fence, started_at, ended_at, due_at,
		next_due_at, lateness, status, stale, response_truncated, project, trigger, outcome, class, key_id,
		error, response_body, detail)
	SELECT CASE WHEN i % 2 = 0 THEN 'often' ELSE CAST(i AS TEXT) END, i, 1, i, i, i, i, i, 0, 200, 0, 0,
		'default', 'schedule', 'failed', 'rule_mismatch', '', '', '', '{}'
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO activity (project, lane, span, at, accepted, succeeded, failed, unknown, dead, unresolved,
		lateness_0, lateness_1, lateness_2, lateness_3, lateness_4, lateness_5, lateness_6, lateness_7,
		lateness_8, lateness_9, lateness_10, lateness_11,
		took_0, took_1, took_2, took_3, took_4, took_5, took_6, took_7, took_8, took_9, took_10, took_11)
	SELECT CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END,
		CASE WHEN i % 20 < 4 THEN 0 ELSE i % 1000 END,
		CASE i % 3 WHEN 0 THEN 60000 WHEN 1 THEN 900000 ELSE 3600000 END,
		1790000000000 - CAST(i AS BIGINT) * 60000, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
	FROM generate_series(1, 60000) AS numbers(i);

INSERT INTO lanes (id, project, key)
	SELECT i, 'default', 'lane-' || CAST(i AS TEXT) FROM generate_series(1, 60000) AS numbers(i);
