-- +goose Up
-- The schema, for SQLite. 0001_schema.postgres.sql has the same tables and columns; a test compares them.
--
-- Until release 0.1.0 a change edits this pair of files, and a database of another schema is refused
-- (docs/adr/0026-one-schema-until-the-first-release.md).
--
-- Ids are ULIDs, compared byte by byte: their order is the order of time. Times are Unix milliseconds;
-- zero means none. Structured values are JSON text; empty means none. There are no booleans: 0 and 1.

-- Projects and their settings -------------------------------------------------------------------------------

CREATE TABLE projects (
	id           TEXT PRIMARY KEY,
	name         TEXT NOT NULL DEFAULT '',
	defaults     TEXT NOT NULL DEFAULT '',
	paused_until INTEGER NOT NULL DEFAULT 0,
	paused_at    INTEGER NOT NULL DEFAULT 0,
	pause_reason TEXT NOT NULL DEFAULT '',
	open_quota   INTEGER NOT NULL DEFAULT 0,
	lane_quota   INTEGER NOT NULL DEFAULT 0,
	version      INTEGER NOT NULL DEFAULT 0,
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL DEFAULT 0,
	sealed_key   TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX projects_sealed ON projects (sealed_key, id) WHERE sealed_key <> '';
CREATE INDEX projects_version ON projects (version) WHERE version > 0;
INSERT INTO projects (id, created_at) VALUES ('default', 0);

-- Numbers that only grow. Each change of settings raises "settings" and so locks its row until it commits:
-- changes become visible in the order of their numbers. The others belong to the table outcomes.
CREATE TABLE versions (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT;
INSERT INTO versions (name, value) VALUES ('settings', 0), ('outcomes', 0), ('outcomes_at', 0);

-- kind is policy, success_rule or profile; value is JSON.
CREATE TABLE presets (
	project    TEXT NOT NULL,
	kind       TEXT NOT NULL,
	name       TEXT NOT NULL,
	value      TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (project, kind, name)
) STRICT;

-- hash is the SHA-256 of the key's text in hexadecimal, scopes a JSON list.
CREATE TABLE api_keys (
	id           TEXT PRIMARY KEY,
	project      TEXT NOT NULL,
	name         TEXT NOT NULL,
	scopes       TEXT NOT NULL,
	hash         TEXT NOT NULL UNIQUE,
	hint         TEXT NOT NULL,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL,
	revoked_at   INTEGER NOT NULL DEFAULT 0,
	last_used_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX api_keys_project ON api_keys (project, id);

-- Secrets of endpoints (owner is the endpoint's id) and of projects (owner is empty), for one use each; the
-- root secret of a project, from which those of lanes are derived, has an empty use. The installation has
-- secrets too: their project is empty. At most one of an owner and use is present, even when several
-- processes start at once. hosts is a JSON list of where it may be used beside its endpoint's own host.
CREATE TABLE secrets (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	owner      TEXT NOT NULL,
	use        TEXT NOT NULL,
	label      TEXT NOT NULL,
	hosts      TEXT NOT NULL,
	key_id     TEXT NOT NULL,
	ciphertext BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	retired_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX secrets_present ON secrets (project, owner, use) WHERE retired_at = 0;
CREATE INDEX secrets_owner ON secrets (project, owner, id);
CREATE INDEX secrets_key ON secrets (key_id, id);

-- Lanes and endpoints ---------------------------------------------------------------------------------------

-- paused_until is the latest of the pauses of the lane itself, its endpoint and its project; own_paused_at is
-- since when its own has lasted, as paused_at is of projects and endpoints. At most
-- rate_count attempts begin in each rate_per_ms; zero means no bound.
-- search is what searches look in: store.Fold of the key, so that no collation decides what is found.
CREATE TABLE lanes (
	id                    INTEGER PRIMARY KEY AUTOINCREMENT,
	project               TEXT NOT NULL,
	key                   TEXT NOT NULL,
	endpoint_id           TEXT NOT NULL DEFAULT '',
	concurrency           INTEGER NOT NULL DEFAULT 0,
	rate_count            INTEGER NOT NULL DEFAULT 0,
	rate_per_ms           INTEGER NOT NULL DEFAULT 0,
	paused_until          INTEGER NOT NULL DEFAULT 0,
	own_paused_until      INTEGER NOT NULL DEFAULT 0,
	own_paused_at         INTEGER NOT NULL DEFAULT 0,
	endpoint_paused_until INTEGER NOT NULL DEFAULT 0,
	project_paused_until  INTEGER NOT NULL DEFAULT 0,
	pause_reason          TEXT NOT NULL DEFAULT '',
	search                TEXT NOT NULL DEFAULT '',
	version               INTEGER NOT NULL DEFAULT 0,
	UNIQUE (project, key)
) STRICT;
CREATE INDEX lanes_version ON lanes (version) WHERE version > 0;

-- canceling is set while the open callbacks of a deleted endpoint are canceled: those with lower ids are
-- left to do.
-- search is store.Fold of external_id, name, url and id, a line each.
CREATE TABLE endpoints (
	id              TEXT PRIMARY KEY,
	lane            INTEGER NOT NULL,
	version         INTEGER NOT NULL,
	rate_count      INTEGER NOT NULL,
	rate_per_ms     INTEGER NOT NULL,
	paused_until    INTEGER NOT NULL,
	paused_at       INTEGER NOT NULL DEFAULT 0,
	disabled_at     INTEGER NOT NULL DEFAULT 0,
	failing_since   INTEGER NOT NULL DEFAULT 0,
	alerted_at      INTEGER NOT NULL DEFAULT 0,
	last_success_at INTEGER NOT NULL DEFAULT 0,
	last_failure_at INTEGER NOT NULL DEFAULT 0,
	created_at      INTEGER NOT NULL,
	updated_at      INTEGER NOT NULL,
	deleted_at      INTEGER NOT NULL DEFAULT 0,
	concurrency     INTEGER NOT NULL,
	enabled         INTEGER NOT NULL,
	project         TEXT NOT NULL,
	external_id     TEXT NOT NULL,
	name            TEXT NOT NULL,
	url             TEXT NOT NULL,
	url_override    TEXT NOT NULL,
	topics          TEXT NOT NULL,
	policy          TEXT NOT NULL,
	success         TEXT NOT NULL,
	signer          TEXT NOT NULL,
	headers         TEXT NOT NULL,
	search          TEXT NOT NULL,
	disabled_reason TEXT NOT NULL,
	pause_reason    TEXT NOT NULL,
	canceling       TEXT NOT NULL DEFAULT '',
	sealed_key      TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX endpoints_sealed ON endpoints (sealed_key, id) WHERE sealed_key <> '';
CREATE INDEX endpoints_project ON endpoints (project, id) WHERE deleted_at = 0;
CREATE UNIQUE INDEX endpoints_external ON endpoints (project, external_id)
	WHERE external_id <> '' AND deleted_at = 0;
CREATE INDEX endpoints_topics ON endpoints (project, id) WHERE topics <> '' AND deleted_at = 0;
-- Those that may subscribe to operational events.
CREATE INDEX endpoints_alerts ON endpoints (project)
	WHERE deleted_at = 0 AND (instr(topics, '"*"') > 0 OR instr(topics, '"dispatcher.') > 0);
CREATE INDEX endpoints_version ON endpoints (version);
CREATE INDEX endpoints_failing ON endpoints (failing_since) WHERE failing_since > 0;
CREATE INDEX endpoints_canceling ON endpoints (id) WHERE canceling <> '';

-- Callbacks -------------------------------------------------------------------------------------------------

-- A callback is a row of callbacks and one of requests. The first has what attempts change and what open and
-- dead callbacks are found by; it is narrow, since each accepted callback has it written three times. The
-- second is written at the accept and has the rest (docs/adr/0033-a-narrow-row-for-attempts.md).
--
-- A claim stamp changes fence, claim_token, claim_until, claimed_at, lost_at, claims_without_result, divert_count,
-- attempt_seq and updated_at. No index may have one of them, so that the stamp writes no index page.
--
-- strict: the row waits for all earlier strict rows of its lock key. reason: of an open row with
-- cancel_requested, what the row will end as; empty means requested. poll_errors: how many polls in a row
-- have ended in an error. payload: 0 without one, 1 with one, 2 when retention has removed it.
CREATE TABLE callbacks (
	due_at           INTEGER NOT NULL,
	fence            INTEGER NOT NULL DEFAULT 0,
	claim_until      INTEGER NOT NULL DEFAULT 0,
	claimed_at       INTEGER NOT NULL DEFAULT 0,
	lost_at          INTEGER NOT NULL DEFAULT 0,
	lane             INTEGER NOT NULL,
	expires_at       INTEGER NOT NULL DEFAULT 0,
	updated_at       INTEGER NOT NULL,
	finished_at      INTEGER NOT NULL DEFAULT 0,
	poll_errors      INTEGER NOT NULL DEFAULT 0,
	timeout_ms       INTEGER NOT NULL,
	claims_without_result INTEGER NOT NULL DEFAULT 0,
	attempt_count    INTEGER NOT NULL DEFAULT 0,
	divert_count     INTEGER NOT NULL DEFAULT 0,
	attempt_seq      INTEGER NOT NULL DEFAULT 0,
	ladder_base      INTEGER NOT NULL DEFAULT 0,
	cancel_requested INTEGER NOT NULL DEFAULT 0,
	free_retry       INTEGER NOT NULL DEFAULT 0,
	last_status      INTEGER NOT NULL DEFAULT 0,
	strict           INTEGER NOT NULL,
	payload          INTEGER NOT NULL,
	id               TEXT PRIMARY KEY,
	project          TEXT NOT NULL,
	state            TEXT NOT NULL,
	claim_token      TEXT NOT NULL DEFAULT '',
	trigger          TEXT NOT NULL,
	kind             TEXT NOT NULL,
	lock_key         TEXT NOT NULL,
	reason           TEXT NOT NULL DEFAULT '',
	resume_state     TEXT NOT NULL DEFAULT '',
	resume_reason    TEXT NOT NULL DEFAULT '',
	last_class       TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- For the sweep, the rebuild and lists by due time.
CREATE INDEX callbacks_due ON callbacks (due_at, id) WHERE state = 'scheduled';
CREATE INDEX callbacks_expiry ON callbacks (expires_at) WHERE state = 'scheduled' AND expires_at > 0;
-- For lists, newest first. Without an index of their own, lists of dead and canceled rows would read all
-- succeeded ones.
CREATE INDEX callbacks_ended ON callbacks (project, state, id)
	WHERE state <> 'scheduled' AND state <> 'succeeded';
CREATE INDEX callbacks_polls ON callbacks (project, id) WHERE kind = 'poll';
CREATE INDEX callbacks_lock ON callbacks (project, lock_key, id) WHERE lock_key <> '';
-- For dead letters: the first and the last of each group are found without reading the rows between, and
-- those of a lane.
CREATE INDEX callbacks_dead ON callbacks (project, reason, last_class, last_status, id) WHERE state = 'dead';
CREATE INDEX callbacks_dead_lane ON callbacks (lane, id) WHERE state = 'dead';
-- For the next strict callback of a lock key.
CREATE INDEX callbacks_strict ON callbacks (project, lock_key, id) WHERE strict = 1 AND state = 'scheduled';
-- For retention: a row that has ended is in the first until its payload is purged, then in the second.
CREATE INDEX callbacks_payload_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload = 1;
CREATE INDEX callbacks_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload <> 1;

-- What is sent, and what lists find it by. Only a change by hand, the address of an endpoint that has moved
-- and retention write it again. The primary key is also the order of a project's list.
--
-- follows: the address is that of the endpoint. body is the callback's own payload; shared is the id of one
-- in payloads, or empty. The body stands last: SQLite reads the others without it.
CREATE TABLE requests (
	created_at   INTEGER NOT NULL,
	first_due_at INTEGER NOT NULL,
	follows      INTEGER NOT NULL,
	project      TEXT NOT NULL,
	id           TEXT NOT NULL,
	endpoint_id  TEXT NOT NULL,
	topic        TEXT NOT NULL,
	ref          TEXT NOT NULL,
	method       TEXT NOT NULL,
	content_type TEXT NOT NULL,
	signer       TEXT NOT NULL,
	url          TEXT NOT NULL,
	headers      TEXT NOT NULL,
	labels       TEXT NOT NULL,
	policy       TEXT NOT NULL,
	success      TEXT NOT NULL,
	sealed_key   TEXT NOT NULL,
	shared       TEXT NOT NULL,
	version      INTEGER,
	body         BLOB,
	PRIMARY KEY (project, id)
) STRICT;
CREATE INDEX requests_sealed ON requests (sealed_key, id) WHERE sealed_key <> '';
CREATE INDEX requests_ref ON requests (project, ref, id) WHERE ref <> '';
CREATE INDEX requests_endpoint ON requests (project, endpoint_id, id) WHERE endpoint_id <> '';

-- Bodies that several callbacks share. users counts them.
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

-- The highest accepted version of each (topic, ref) whose callbacks supersede each other.
CREATE TABLE refs_latest (
	project    TEXT NOT NULL,
	topic      TEXT NOT NULL,
	ref        TEXT NOT NULL,
	version    INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (project, topic, ref)
) STRICT;
CREATE INDEX refs_latest_age ON refs_latest (updated_at);

-- Events ----------------------------------------------------------------------------------------------------

-- Events with an idempotency key. The row commits before the callbacks of the event, so that a repetition
-- makes the same callbacks for the same endpoints, whatever has subscribed since.
CREATE TABLE events (
	id          TEXT PRIMARY KEY,
	project     TEXT NOT NULL,
	route       TEXT NOT NULL,
	key         TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_key ON events (project, route, key);
CREATE INDEX events_age ON events (created_at, id);

CREATE TABLE event_targets (
	event_id    TEXT NOT NULL,
	endpoint_id TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	PRIMARY KEY (event_id, endpoint_id)
) STRICT;

-- What happened to endpoints and is to be told of as an event: it commits with what happened, and goes when the
-- event is accepted. kind is failing, disabled or recovered; since is when the endpoint began to fail.
CREATE TABLE endpoint_events (
	id          TEXT PRIMARY KEY,
	project     TEXT NOT NULL,
	endpoint_id TEXT NOT NULL,
	kind        TEXT NOT NULL,
	at          INTEGER NOT NULL,
	since       INTEGER NOT NULL
) STRICT;

-- Polls and schedules ---------------------------------------------------------------------------------------

-- The second half of a callback of kind poll. live is a hash of project, reference and address while the
-- poll is open: one of each may be. context and data are JSON from the caller. on_result is JSON of the
-- result callback; empty means none. outcome is the last result, result_id the callback that carries it.
CREATE TABLE polls (
	id        TEXT PRIMARY KEY,
	project   TEXT NOT NULL,
	live      TEXT NOT NULL,
	context   TEXT NOT NULL,
	on_result TEXT NOT NULL,
	outcome   TEXT NOT NULL DEFAULT '',
	result_id TEXT NOT NULL DEFAULT '',
	data      TEXT NOT NULL DEFAULT '',
	sealed_key TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX polls_sealed ON polls (sealed_key, id) WHERE sealed_key <> '';
CREATE UNIQUE INDEX polls_live ON polls (live) WHERE live <> '';
-- For the question whether a callback carries the result of a poll.
CREATE INDEX polls_result ON polls (result_id) WHERE result_id <> '';

-- next_at is the next due time, zero while there is none. The transaction that raises next_at also makes
-- the callback that was due then.
-- search is store.Fold of the name.
CREATE TABLE schedules (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	name       TEXT NOT NULL,
	search     TEXT NOT NULL DEFAULT '',
	cron       TEXT NOT NULL,
	timezone   TEXT NOT NULL,
	template   TEXT NOT NULL,
	missed     TEXT NOT NULL,
	enabled    INTEGER NOT NULL,
	next_at    INTEGER NOT NULL,
	last_at    INTEGER NOT NULL DEFAULT 0,
	last_id    TEXT NOT NULL DEFAULT '',
	last_error TEXT NOT NULL DEFAULT '',
	version    INTEGER NOT NULL DEFAULT 1,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	sealed_key TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX schedules_sealed ON schedules (sealed_key, id) WHERE sealed_key <> '';
CREATE UNIQUE INDEX schedules_name ON schedules (project, name);
CREATE INDEX schedules_project ON schedules (project, id);
CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at > 0;

-- The last callbacks that each schedule has made.
CREATE TABLE schedule_runs (
	schedule_id TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	due_at      INTEGER NOT NULL,
	fired_at    INTEGER NOT NULL,
	trigger     TEXT NOT NULL,
	PRIMARY KEY (schedule_id, callback_id)
) STRICT;

-- Redrives --------------------------------------------------------------------------------------------------

-- An action over the callbacks that a filter picked. spec is JSON of the action. Gathering goes on at
-- gathered_due and gathered_id; zero and empty mean the beginning.
CREATE TABLE redrives (
	id           TEXT PRIMARY KEY,
	project      TEXT NOT NULL,
	state        TEXT NOT NULL,
	paused       INTEGER NOT NULL DEFAULT 0,
	spec         TEXT NOT NULL,
	actor        TEXT NOT NULL,
	address      TEXT NOT NULL,
	reason       TEXT NOT NULL,
	matched      INTEGER NOT NULL DEFAULT 0,
	done         INTEGER NOT NULL DEFAULT 0,
	failed       INTEGER NOT NULL DEFAULT 0,
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL,
	finished_at  INTEGER NOT NULL DEFAULT 0,
	gathered_due INTEGER NOT NULL DEFAULT 0,
	gathered_id  TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX redrives_project ON redrives (project, id);
CREATE INDEX redrives_open ON redrives (project) WHERE finished_at = 0;
CREATE INDEX redrives_to_do ON redrives (project, id) WHERE state IN ('gathering', 'running');

-- The callbacks that a redrive has still to act on. The transaction that acts deletes the row.
CREATE TABLE redrive_items (
	redrive_id  TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	PRIMARY KEY (redrive_id, callback_id)
) STRICT;

-- Counters and the feed of outcomes -------------------------------------------------------------------------

-- One row a committed group: JSON of project, counter and difference, and JSON of the callbacks that the
-- group ended. Folding takes the rows away, once a second.
CREATE TABLE commit_notes (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	deltas   TEXT NOT NULL,
	outcomes TEXT NOT NULL
) STRICT;

-- kind is state, tier, lane or due; key says which one. Those of kind due count the open callbacks that
-- are due within one hour. The key is the hour's number since 1970 in six digits: the order of keys is the
-- order of time.
CREATE TABLE counters (
	project TEXT NOT NULL,
	kind    TEXT NOT NULL,
	key     TEXT NOT NULL,
	value   INTEGER NOT NULL,
	PRIMARY KEY (project, kind, key)
) STRICT;
CREATE INDEX counters_lanes ON counters (project, value) WHERE kind = 'lane';
-- For the purge of hours that have passed.
CREATE INDEX counters_due ON counters (key) WHERE kind = 'due';

-- The feed: what has ended, in order, as one transaction after the other took it from commit_notes. at is
-- the time of that transaction and never decreases.
CREATE TABLE outcomes (
	project TEXT NOT NULL,
	at      INTEGER NOT NULL,
	id      INTEGER NOT NULL,
	entries TEXT NOT NULL,
	PRIMARY KEY (project, at, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX outcomes_age ON outcomes (at);

-- What happened in the span milliseconds from at on, in one lane, or in all lanes of a project where lane
-- is 0. lateness_N and took_N count attempts by how late they began and how long they took: package store
-- has the bounds.
CREATE TABLE activity (
	project     TEXT NOT NULL,
	lane        INTEGER NOT NULL,
	span        INTEGER NOT NULL,
	at          INTEGER NOT NULL,
	accepted    INTEGER NOT NULL,
	succeeded   INTEGER NOT NULL,
	failed      INTEGER NOT NULL,
	unknown     INTEGER NOT NULL,
	dead        INTEGER NOT NULL,
	lateness_0  INTEGER NOT NULL,
	lateness_1  INTEGER NOT NULL,
	lateness_2  INTEGER NOT NULL,
	lateness_3  INTEGER NOT NULL,
	lateness_4  INTEGER NOT NULL,
	lateness_5  INTEGER NOT NULL,
	lateness_6  INTEGER NOT NULL,
	lateness_7  INTEGER NOT NULL,
	lateness_8  INTEGER NOT NULL,
	lateness_9  INTEGER NOT NULL,
	lateness_10 INTEGER NOT NULL,
	lateness_11 INTEGER NOT NULL,
	took_0      INTEGER NOT NULL,
	took_1      INTEGER NOT NULL,
	took_2      INTEGER NOT NULL,
	took_3      INTEGER NOT NULL,
	took_4      INTEGER NOT NULL,
	took_5      INTEGER NOT NULL,
	took_6      INTEGER NOT NULL,
	took_7      INTEGER NOT NULL,
	took_8      INTEGER NOT NULL,
	took_9      INTEGER NOT NULL,
	took_10     INTEGER NOT NULL,
	took_11     INTEGER NOT NULL,
	PRIMARY KEY (project, lane, span, at)
) STRICT, WITHOUT ROWID;
-- For the purge.
CREATE INDEX activity_age ON activity (span, at) WHERE lane = 0;
CREATE INDEX activity_lanes_age ON activity (at) WHERE lane > 0;

-- Audit, the index, processes and sessions ------------------------------------------------------------------

-- before and after are what a change made different. seq and hash chain the entries, some seconds after their commit: a row
-- that is not chained yet has zero and ''.
CREATE TABLE audit (
	id      TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	at      INTEGER NOT NULL,
	actor   TEXT NOT NULL,
	address TEXT NOT NULL,
	action  TEXT NOT NULL,
	object  TEXT NOT NULL,
	reason  TEXT NOT NULL,
	before  TEXT NOT NULL,
	after   TEXT NOT NULL,
	detail  TEXT NOT NULL,
	seq     INTEGER NOT NULL DEFAULT 0,
	hash    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX audit_project ON audit (project, id);
CREATE INDEX audit_object ON audit (project, object, id);
CREATE UNIQUE INDEX audit_chained ON audit (seq) WHERE seq <> 0;
CREATE INDEX audit_unchained ON audit (id) WHERE seq = 0;

-- The last entry of the chain. Its row is locked while entries are chained.
CREATE TABLE audit_head (
	id   INTEGER PRIMARY KEY CHECK (id = 1),
	seq  INTEGER NOT NULL,
	hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');

-- The index that this database fills, by a generation that was made at made_at. built is the generation that
-- was built last, at built_at.
CREATE TABLE index_meta (
	id         INTEGER PRIMARY KEY CHECK (id = 1),
	generation INTEGER NOT NULL,
	built      INTEGER NOT NULL,
	built_at   INTEGER NOT NULL DEFAULT 0,
	made_at    INTEGER NOT NULL DEFAULT 0,
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

-- The processes, as each has last reported itself; ended_at: it has ended in order.
CREATE TABLE dispatchers (
	name         TEXT PRIMARY KEY,
	host         TEXT NOT NULL,
	version      TEXT NOT NULL,
	roles        TEXT NOT NULL,
	workers      INTEGER NOT NULL,
	in_flight    INTEGER NOT NULL,
	held         INTEGER NOT NULL,
	draining     INTEGER NOT NULL,
	clock_offset INTEGER NOT NULL,
	started_at   INTEGER NOT NULL,
	seen_at      INTEGER NOT NULL,
	ended_at     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX dispatchers_seen ON dispatchers (seen_at);

-- Browsers that have signed in. token is a hash of the cookie's value. data belongs to the web pages and
-- has no secret.
CREATE TABLE sessions (
	token      TEXT PRIMARY KEY,
	data       BLOB NOT NULL,
	expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_expiry ON sessions (expires_at);
