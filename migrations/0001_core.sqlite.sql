-- +goose Up
-- The first schema, for SQLite. The same tables and columns as 0001_core.postgres.sql; a test compares them.
--
-- Ids are ULIDs, compared byte by byte, so that their order is the order of time. Times are Unix
-- milliseconds; zero means none. Structured values are JSON text, empty for none. There are no booleans: 0 and 1.

CREATE TABLE projects (
	id         TEXT PRIMARY KEY,
	created_at INTEGER NOT NULL
) STRICT;
INSERT INTO projects (id, created_at) VALUES ('default', 0);

CREATE TABLE lanes (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	project      TEXT NOT NULL,
	key          TEXT NOT NULL,
	concurrency  INTEGER NOT NULL DEFAULT 0,
	paused_until INTEGER NOT NULL DEFAULT 0,
	version      INTEGER NOT NULL DEFAULT 0,
	UNIQUE (project, key)
) STRICT;
CREATE INDEX lanes_version ON lanes (version) WHERE version > 0;

-- The hot row. A claim stamp touches fence, claim_token, claim_until, claimed_at, lost_at, crash_count, divert_count,
-- attempt_seq and updated_at: none of them may ever be indexed, so that the stamp writes no index page.
CREATE TABLE callbacks (
	id               TEXT PRIMARY KEY,
	due_at           INTEGER NOT NULL,
	fence            INTEGER NOT NULL DEFAULT 0,
	claim_until      INTEGER NOT NULL DEFAULT 0,
	claimed_at       INTEGER NOT NULL DEFAULT 0,
	lost_at          INTEGER NOT NULL DEFAULT 0,
	lane             INTEGER NOT NULL,
	first_due_at     INTEGER NOT NULL,
	expires_at       INTEGER NOT NULL DEFAULT 0,
	created_at       INTEGER NOT NULL,
	updated_at       INTEGER NOT NULL,
	finished_at      INTEGER NOT NULL DEFAULT 0,
	version          INTEGER,
	timeout_ms       INTEGER NOT NULL,
	crash_count      INTEGER NOT NULL DEFAULT 0,
	attempt_count    INTEGER NOT NULL DEFAULT 0,
	divert_count     INTEGER NOT NULL DEFAULT 0,
	attempt_seq      INTEGER NOT NULL DEFAULT 0,
	ladder_base      INTEGER NOT NULL DEFAULT 0,
	cancel_requested INTEGER NOT NULL DEFAULT 0,
	free_retry       INTEGER NOT NULL DEFAULT 0,
	last_status      INTEGER NOT NULL DEFAULT 0,
	payload_purged   INTEGER NOT NULL DEFAULT 0,
	state            TEXT NOT NULL,
	claim_token      TEXT NOT NULL DEFAULT '',
	trigger          TEXT NOT NULL,
	lock_key         TEXT NOT NULL,
	payload_id       TEXT NOT NULL,
	reason           TEXT NOT NULL DEFAULT '',
	resume_state     TEXT NOT NULL DEFAULT '',
	resume_reason    TEXT NOT NULL DEFAULT '',
	last_class       TEXT NOT NULL DEFAULT '',
	project          TEXT NOT NULL,
	kind             TEXT NOT NULL,
	endpoint_id      TEXT NOT NULL,
	topic            TEXT NOT NULL,
	ref              TEXT NOT NULL,
	method           TEXT NOT NULL,
	content_type     TEXT NOT NULL,
	signer           TEXT NOT NULL,
	url              TEXT NOT NULL,
	headers          TEXT NOT NULL,
	labels           TEXT NOT NULL,
	policy           TEXT NOT NULL,
	success          TEXT NOT NULL
) STRICT;

-- The walks of sweep and rebuild, and lists by due time.
CREATE INDEX callbacks_due ON callbacks (due_at, id) WHERE state = 'scheduled';
CREATE INDEX callbacks_expiry ON callbacks (expires_at) WHERE state = 'scheduled' AND expires_at > 0;
-- Lists, newest first; those of dead and canceled ones would otherwise read through all that succeeded.
CREATE INDEX callbacks_project ON callbacks (project, id);
CREATE INDEX callbacks_ended ON callbacks (project, state, id) WHERE state IN ('dead', 'canceled');
CREATE INDEX callbacks_ref ON callbacks (project, ref, id) WHERE ref <> '';
-- Retention: a terminal row is in the first until its payload is purged, then in the second.
CREATE INDEX callbacks_payload_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload_id <> '';
CREATE INDEX callbacks_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload_id = '';

-- Bodies, apart from the hot row. users counts the callbacks that share it.
CREATE TABLE payloads (
	id      TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	users   INTEGER NOT NULL,
	body    BLOB NOT NULL
) STRICT;

-- detail is JSON: timings, headers, rule.
CREATE TABLE attempts (
	callback_id        TEXT NOT NULL,
	number             INTEGER NOT NULL,
	charged            INTEGER NOT NULL,
	fence              INTEGER NOT NULL,
	started_at         INTEGER NOT NULL,
	ended_at           INTEGER NOT NULL,
	due_at             INTEGER NOT NULL,
	next_due_at        INTEGER NOT NULL,
	lateness           REAL NOT NULL,
	status             INTEGER NOT NULL,
	stale              INTEGER NOT NULL,
	response_truncated INTEGER NOT NULL,
	project            TEXT NOT NULL,
	trigger            TEXT NOT NULL,
	outcome            TEXT NOT NULL,
	class              TEXT NOT NULL,
	key_id             TEXT NOT NULL,
	error              TEXT NOT NULL,
	response_body      TEXT NOT NULL,
	detail             TEXT NOT NULL,
	PRIMARY KEY (callback_id, number)
) STRICT;

CREATE TABLE idempotency (
	project     TEXT NOT NULL,
	route       TEXT NOT NULL,
	key         TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	created_at  INTEGER NOT NULL,
	PRIMARY KEY (project, route, key)
) STRICT;
CREATE INDEX idempotency_age ON idempotency (created_at, callback_id);

CREATE TABLE secrets (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	key_id     TEXT NOT NULL,
	ciphertext BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	retired_at INTEGER NOT NULL DEFAULT 0
) STRICT;
-- One present secret a project, whoever starts at the same time.
CREATE UNIQUE INDEX secrets_present ON secrets (project) WHERE retired_at = 0;
CREATE INDEX secrets_project ON secrets (project, id);

CREATE TABLE audit (
	id      TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	at      INTEGER NOT NULL,
	actor   TEXT NOT NULL,
	action  TEXT NOT NULL,
	object  TEXT NOT NULL,
	reason  TEXT NOT NULL,
	detail  TEXT NOT NULL
) STRICT;
CREATE INDEX audit_project ON audit (project, id);

CREATE TABLE index_meta (
	id         INTEGER PRIMARY KEY CHECK (id = 1),
	generation INTEGER NOT NULL,
	built      INTEGER NOT NULL,
	shards     INTEGER NOT NULL,
	prefix     TEXT NOT NULL
) STRICT;

CREATE TABLE leases (
	name       TEXT PRIMARY KEY,
	holder     TEXT NOT NULL,
	held_until INTEGER NOT NULL
) STRICT;

CREATE TABLE cursors (
	name   TEXT PRIMARY KEY,
	due_at INTEGER NOT NULL,
	id     TEXT NOT NULL
) STRICT;

-- kind is state, tier or lane; key says which one.
CREATE TABLE counters (
	project TEXT NOT NULL,
	kind    TEXT NOT NULL,
	key     TEXT NOT NULL,
	value   INTEGER NOT NULL,
	PRIMARY KEY (project, kind, key)
) STRICT;
CREATE INDEX counters_lanes ON counters (project, value) WHERE kind = 'lane';

-- One row a committed group: JSON of project, counter, difference.
CREATE TABLE counter_deltas (
	id     INTEGER PRIMARY KEY AUTOINCREMENT,
	deltas TEXT NOT NULL
) STRICT;
