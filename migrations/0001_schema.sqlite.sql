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
	reconcile_at   TEXT NOT NULL DEFAULT '',
	reconcile_zone TEXT NOT NULL DEFAULT '',
	reconcile_list INTEGER NOT NULL DEFAULT 0,
	reconcile_next INTEGER NOT NULL DEFAULT 0,
	reconcile_error TEXT NOT NULL DEFAULT '',
	version      INTEGER NOT NULL DEFAULT 0,
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL DEFAULT 0,
	sealed_key   TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX projects_sealed ON projects (sealed_key, id) WHERE sealed_key <> '';
CREATE INDEX projects_reconcile ON projects (reconcile_next) WHERE reconcile_next > 0;
CREATE INDEX projects_version ON projects (version) WHERE version > 0;
INSERT INTO projects (id, created_at) VALUES ('default', 0);

-- Numbers that only grow. A change of settings increments "settings", which locks the row until the commit.
-- So changes become visible in the order of their numbers. The other numbers belong to the table outcomes.
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
	last_used_at INTEGER NOT NULL DEFAULT 0,
	endpoint_id  TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX api_keys_project ON api_keys (project, id);

-- Secrets of endpoints (owner is the endpoint's id), of projects (owner is empty) and of the installation
-- (project is empty). use says what a secret is for. It is empty for the root secret of a project, from which
-- the secrets of lanes are derived. Each owner and use has at most one current secret, even if several
-- processes start at once. hosts is a JSON list of the hosts where the secret may be used, in addition to the
-- endpoint's own host.
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

-- paused_until is the latest end of the pauses of the lane, its endpoint and its project. own_paused_at is
-- the start of the lane's own pause, like paused_at of projects and endpoints. At most rate_count attempts
-- start in rate_per_ms; zero means no limit. Searches read the column search: it is store.Fold of the key, so
-- the result does not depend on a collation.
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

-- canceling is set while the open callbacks of a deleted endpoint are canceled, in the order of their ids. It
-- is the last id that was checked, or "!" at the start. A leading "~" marks the second pass, over callbacks
-- that were accepted late. search is store.Fold of external_id, name, url and id, one per line.
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
	succeeded       INTEGER NOT NULL DEFAULT 0,
	failed          INTEGER NOT NULL DEFAULT 0,
	created_at      INTEGER NOT NULL,
	updated_at      INTEGER NOT NULL,
	deleted_at      INTEGER NOT NULL DEFAULT 0,
	link_version    INTEGER NOT NULL DEFAULT 0,
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
-- For operational events: the endpoints that may subscribe to them.
CREATE INDEX endpoints_alerts ON endpoints (project)
	WHERE deleted_at = 0 AND (instr(topics, '"*"') > 0 OR instr(topics, '"dispatcher.') > 0);
CREATE INDEX endpoints_version ON endpoints (version);
CREATE INDEX endpoints_failing ON endpoints (failing_since) WHERE failing_since > 0;
-- For the lanes whose dead callbacks are messages of alerts.
CREATE INDEX endpoints_sinks ON endpoints (lane)
	WHERE deleted_at = 0 AND substr(external_id, 1, 11) = 'alert-sink:';
CREATE INDEX endpoints_canceling ON endpoints (id) WHERE canceling <> '';

-- Callbacks -------------------------------------------------------------------------------------------------

-- A callback has a row in callbacks and a row in requests. The row in callbacks has the columns that attempts
-- change and the columns that find open and dead callbacks. It is narrow, because each callback writes it
-- three times. The row in requests is written at the accept and has the rest
-- (docs/adr/0033-a-narrow-row-for-attempts.md).
--
-- A claim stamp changes fence, claim_token, claim_until, claimed_at, lost_at, claims_without_result,
-- divert_count, attempt_seq and updated_at. No index may include these columns, so that the stamp writes no
-- index page.
--
-- strict: the row waits for all earlier strict rows of its lock key. reason: the reason of a finished row. In
-- an open row with cancel_requested, it is the reason that the row will end with; empty means requested.
-- diverts_since and divert_reason: the diverts since the last attempt, and the reason of the last one.
-- poll_errors: the number of polls in a row that ended in an error. payload: 0 without a payload, 1 with one,
-- 2 after retention has removed it.
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
	diverts_since    INTEGER NOT NULL DEFAULT 0,
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
	divert_reason    TEXT NOT NULL DEFAULT '',
	last_class       TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- For the sweep, the rebuild and lists by due time.
CREATE INDEX callbacks_due ON callbacks (due_at, id) WHERE state = 'scheduled';
CREATE INDEX callbacks_expiry ON callbacks (expires_at) WHERE state = 'scheduled' AND expires_at > 0;
-- For lists, newest first. Without this index, lists of dead and canceled rows would read all succeeded rows.
CREATE INDEX callbacks_ended ON callbacks (project, state, id)
	WHERE state <> 'scheduled' AND state <> 'succeeded';
CREATE INDEX callbacks_polls ON callbacks (project, id) WHERE kind = 'poll';
CREATE INDEX callbacks_lock ON callbacks (project, lock_key, id) WHERE lock_key <> '';
-- For dead letters: queries find the first and the last row of each group without the rows between, and the
-- dead rows of a lane.
CREATE INDEX callbacks_dead ON callbacks (project, reason, last_class, last_status, id) WHERE state = 'dead';
CREATE INDEX callbacks_dead_lane ON callbacks (lane, id) WHERE state = 'dead';
-- For dead letters of the last hour.
CREATE INDEX callbacks_died ON callbacks (project, finished_at, last_class) WHERE state = 'dead';
-- For the next strict callback of a lock key.
CREATE INDEX callbacks_strict ON callbacks (project, lock_key, id) WHERE strict = 1 AND state = 'scheduled';
-- For retention: a finished row is in the first index until its payload is purged, then in the second.
CREATE INDEX callbacks_payload_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload = 1;
CREATE INDEX callbacks_retention ON callbacks (finished_at) WHERE finished_at > 0 AND payload <> 1;

-- The request of a callback, and the columns that lists filter by. Only an edit, a new URL of the endpoint
-- and retention write the row again. The primary key is also the order of a project's list.
--
-- follows: the URL is that of the endpoint. first_url is the URL of the accept, or NULL if url has never
-- changed. trace_context is the span that created the callback (W3C: trace id, span id and flags, 25 bytes),
-- or NULL. created_by is the id of the API key or another creator, or empty if unknown. body is the
-- callback's own payload. shared is the id of a payload in payloads, or empty. body is the last column, so
-- SQLite reads the others without it.
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
	created_by   TEXT NOT NULL,
	version      INTEGER,
	first_url    TEXT,
	trace_context BLOB,
	body         BLOB,
	PRIMARY KEY (project, id)
) STRICT;
CREATE INDEX requests_sealed ON requests (sealed_key, id) WHERE sealed_key <> '';
CREATE INDEX requests_ref ON requests (project, ref, id) WHERE ref <> '';
CREATE INDEX requests_endpoint ON requests (project, endpoint_id, id) WHERE endpoint_id <> '';

-- Payloads that several callbacks share. users is the number of these callbacks.
CREATE TABLE payloads (
	id      TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	users   INTEGER NOT NULL,
	body    BLOB NOT NULL
) STRICT;

-- detail is JSON: timings, headers, rule, and the URL if that is not the first URL of the callback.
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

-- The highest accepted version of each (topic, ref) that has callbacks with supersede.
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

-- Events with an idempotency key. The row commits before the callbacks of the event. So a repeated request
-- creates the same callbacks for the same endpoints, although others may have subscribed since.
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

-- Changes of endpoints that are not published as events yet. A row commits with the change, and is deleted
-- when the event is accepted. kind is failing, disabled or recovered. since is when the endpoint began to
-- fail.
CREATE TABLE endpoint_events (
	id          TEXT PRIMARY KEY,
	project     TEXT NOT NULL,
	endpoint_id TEXT NOT NULL,
	kind        TEXT NOT NULL,
	at          INTEGER NOT NULL,
	since       INTEGER NOT NULL
) STRICT;

-- Polls and schedules ---------------------------------------------------------------------------------------

-- The additional columns of a callback of kind poll. While the poll is open, live is a hash of project,
-- reference and URL: its index allows one open poll of each. context and data are JSON from the caller.
-- on_result is the JSON of the result callback; empty means none. outcome is the last result. result_id is
-- the callback that carries it.
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
-- For the check whether a callback carries the result of a poll.
CREATE INDEX polls_result ON polls (result_id) WHERE result_id <> '';

-- next_at is the next due time; zero means none. The transaction that moves next_at forward also creates the
-- callback that was due. search is store.Fold of the name.
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

-- The last callbacks that each schedule created.
CREATE TABLE schedule_runs (
	schedule_id TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	due_at      INTEGER NOT NULL,
	fired_at    INTEGER NOT NULL,
	trigger     TEXT NOT NULL,
	PRIMARY KEY (schedule_id, callback_id)
) STRICT;

-- Alerts ----------------------------------------------------------------------------------------------------

-- condition is JSON: what the alert watches. sink is the sealed JSON of where its messages go, sink_masked
-- the same for people, sink_id a hash of its type and credential. next_digest is when the next daily summary
-- is due. Each change and each step of the evaluation increments version.
CREATE TABLE alerts (
	id            TEXT PRIMARY KEY,
	project       TEXT NOT NULL,
	name          TEXT NOT NULL,
	search        TEXT NOT NULL DEFAULT '',
	condition     TEXT NOT NULL,
	sink          TEXT NOT NULL,
	sink_masked   TEXT NOT NULL,
	sink_id       TEXT NOT NULL,
	silence_until INTEGER NOT NULL DEFAULT 0,
	digest_at     TEXT NOT NULL DEFAULT '',
	digest_zone   TEXT NOT NULL DEFAULT '',
	next_digest   INTEGER NOT NULL DEFAULT 0,
	enabled       INTEGER NOT NULL,
	sent_at       INTEGER NOT NULL DEFAULT 0,
	sent_id       TEXT NOT NULL DEFAULT '',
	last_error    TEXT NOT NULL DEFAULT '',
	version       INTEGER NOT NULL DEFAULT 1,
	created_at    INTEGER NOT NULL,
	updated_at    INTEGER NOT NULL,
	sealed_key    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX alerts_sealed ON alerts (sealed_key, id) WHERE sealed_key <> '';
CREATE UNIQUE INDEX alerts_name ON alerts (project, name);
CREATE INDEX alerts_project ON alerts (project, id);
CREATE INDEX alerts_sink ON alerts (project, sink_id);

-- What alerts found: an instance from the first breach of the condition to its end. live rows are the state
-- of the evaluation, the others are history.
CREATE TABLE alert_firings (
	id            TEXT PRIMARY KEY,
	project       TEXT NOT NULL,
	alert_id      TEXT NOT NULL,
	instance      TEXT NOT NULL,
	name          TEXT NOT NULL,
	value         REAL NOT NULL,
	pending_since INTEGER NOT NULL,
	fired_at      INTEGER NOT NULL,
	clear_since   INTEGER NOT NULL,
	resolved_at   INTEGER NOT NULL,
	message_id    TEXT NOT NULL,
	live          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX alert_firings_live ON alert_firings (project, alert_id, instance) WHERE live = 1;
CREATE INDEX alert_firings_alert ON alert_firings (alert_id, id);
CREATE INDEX alert_firings_project ON alert_firings (project, id);

-- Redrives --------------------------------------------------------------------------------------------------

-- An action on the callbacks that match a filter. spec is the JSON of the action. Gathering continues after
-- gathered_due and gathered_id; zero and empty mean the start.
CREATE TABLE redrives (
	id             TEXT PRIMARY KEY,
	project        TEXT NOT NULL,
	state          TEXT NOT NULL,
	paused         INTEGER NOT NULL DEFAULT 0,
	spec           TEXT NOT NULL,
	actor          TEXT NOT NULL,
	actor_id       TEXT NOT NULL,
	address        TEXT NOT NULL,
	reason         TEXT NOT NULL,
	matched        INTEGER NOT NULL DEFAULT 0,
	done           INTEGER NOT NULL DEFAULT 0,
	failed         INTEGER NOT NULL DEFAULT 0,
	created_at     INTEGER NOT NULL,
	updated_at     INTEGER NOT NULL,
	finished_at    INTEGER NOT NULL DEFAULT 0,
	approval_above INTEGER NOT NULL DEFAULT 0,
	approver       TEXT NOT NULL DEFAULT '',
	approved_at    INTEGER NOT NULL DEFAULT 0,
	gathered_due   INTEGER NOT NULL DEFAULT 0,
	gathered_id    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX redrives_project ON redrives (project, id);
CREATE INDEX redrives_open ON redrives (project) WHERE finished_at = 0;
CREATE INDEX redrives_to_do ON redrives (project, id) WHERE state IN ('gathering', 'running');
CREATE INDEX redrives_awaiting ON redrives (created_at) WHERE state = 'awaiting_approval';

-- The callbacks that a redrive has not handled yet. The transaction that handles a callback deletes its row.
CREATE TABLE redrive_items (
	redrive_id  TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	PRIMARY KEY (redrive_id, callback_id)
) STRICT;

-- Counters and the feed of outcomes -------------------------------------------------------------------------

-- One row per committed group of writes. deltas is JSON of project, counter and difference. outcomes is JSON
-- of the callbacks that the group finished. A fold reads and deletes the rows once a second.
CREATE TABLE commit_notes (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	deltas   TEXT NOT NULL,
	outcomes TEXT NOT NULL
) STRICT;

-- kind is state, tier, lane or due; key says which one. A counter of kind due counts the open callbacks that
-- are due within one hour. Its key is the number of the hour since 1970 in six digits, so keys sort by time.
CREATE TABLE counters (
	project TEXT NOT NULL,
	kind    TEXT NOT NULL,
	key     TEXT NOT NULL,
	value   INTEGER NOT NULL,
	PRIMARY KEY (project, kind, key)
) STRICT;
CREATE INDEX counters_lanes ON counters (project, value) WHERE kind = 'lane';
-- For the purge of past hours.
CREATE INDEX counters_due ON counters (key) WHERE kind = 'due';

-- The feed of finished callbacks. One transaction after the other moves them here from commit_notes, in
-- order. at is the time of that transaction and never decreases.
CREATE TABLE outcomes (
	project TEXT NOT NULL,
	at      INTEGER NOT NULL,
	id      INTEGER NOT NULL,
	entries TEXT NOT NULL,
	PRIMARY KEY (project, at, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX outcomes_age ON outcomes (at);

-- Counts of the period that starts at at and lasts span milliseconds, for one lane. lane 0 means all lanes of
-- the project. lateness_N and took_N are histograms of attempts, by delay of the start and by duration.
-- Package store has the bounds.
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
	unresolved  INTEGER NOT NULL,
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

-- Reconciliation --------------------------------------------------------------------------------------------

-- The lists of expected callbacks that callers hand in for a day, such as 2026-11-21, and the sizes of the
-- lists.
CREATE TABLE expected_days (
	project    TEXT NOT NULL,
	day        TEXT NOT NULL,
	items      INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (project, day)
) STRICT;
CREATE INDEX expected_days_age ON expected_days (day);
CREATE TABLE expected_items (
	project TEXT NOT NULL,
	day     TEXT NOT NULL,
	ref     TEXT NOT NULL,
	topic   TEXT NOT NULL,
	PRIMARY KEY (project, day, ref, topic)
) STRICT, WITHOUT ROWID;

-- One report for each project and day. run_id is the run that made it. The items are written before the
-- report, so a run that died leaves items without a report.
CREATE TABLE reconcile_reports (
	project     TEXT NOT NULL,
	day         TEXT NOT NULL,
	run_id      TEXT NOT NULL,
	timezone    TEXT NOT NULL,
	from_at     INTEGER NOT NULL,
	to_at       INTEGER NOT NULL,
	run_at      INTEGER NOT NULL,
	accepted    INTEGER NOT NULL,
	succeeded   INTEGER NOT NULL,
	dead        INTEGER NOT NULL,
	canceled    INTEGER NOT NULL,
	open        INTEGER NOT NULL,
	expect_list INTEGER NOT NULL,
	list_given  INTEGER NOT NULL,
	listed      INTEGER NOT NULL,
	matched     INTEGER NOT NULL,
	missing     INTEGER NOT NULL,
	unfinished  INTEGER NOT NULL,
	duplicates  INTEGER NOT NULL,
	extra       INTEGER NOT NULL,
	announced   INTEGER NOT NULL,
	PRIMARY KEY (project, day)
) STRICT;
CREATE INDEX reconcile_reports_age ON reconcile_reports (run_at);
CREATE INDEX reconcile_reports_new ON reconcile_reports (run_at) WHERE announced = 0;
CREATE UNIQUE INDEX reconcile_reports_run ON reconcile_reports (run_id);
CREATE TABLE reconcile_items (
	run_id      TEXT NOT NULL,
	number      INTEGER NOT NULL,
	kind        TEXT NOT NULL,
	ref         TEXT NOT NULL,
	topic       TEXT NOT NULL,
	state       TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	callbacks   INTEGER NOT NULL,
	PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX reconcile_items_kind ON reconcile_items (run_id, kind, number);

-- Relay -----------------------------------------------------------------------------------------------------

-- Outbox tables of applications. A row is the lease of a source, the last report of its relay and the newest
-- act of a person. refusals is the JSON of the newest refused rows, for people.
CREATE TABLE relay_sources (
	project          TEXT NOT NULL,
	name             TEXT NOT NULL,
	origin           TEXT NOT NULL,
	holder           TEXT NOT NULL,
	held_by          TEXT NOT NULL,
	held_until       INTEGER NOT NULL,
	created_at       INTEGER NOT NULL,
	reported_at      INTEGER NOT NULL DEFAULT 0,
	lag_ms           INTEGER NOT NULL DEFAULT 0,
	waiting          INTEGER NOT NULL DEFAULT 0,
	refused_rows     INTEGER NOT NULL DEFAULT 0,
	rows_per_second  REAL NOT NULL DEFAULT 0,
	error            TEXT NOT NULL DEFAULT '',
	refusals         TEXT NOT NULL DEFAULT '',
	act_id           TEXT NOT NULL DEFAULT '',
	act_action       TEXT NOT NULL DEFAULT '',
	act_row_id       TEXT NOT NULL DEFAULT '',
	act_code         TEXT NOT NULL DEFAULT '',
	act_since        INTEGER NOT NULL DEFAULT 0,
	act_dry_run      INTEGER NOT NULL DEFAULT 0,
	act_rate         INTEGER NOT NULL DEFAULT 0,
	act_requested_at INTEGER NOT NULL DEFAULT 0,
	act_requested_by TEXT NOT NULL DEFAULT '',
	act_state        TEXT NOT NULL DEFAULT '',
	act_matched      INTEGER NOT NULL DEFAULT 0,
	act_accepted     INTEGER NOT NULL DEFAULT 0,
	act_replayed     INTEGER NOT NULL DEFAULT 0,
	act_refused      INTEGER NOT NULL DEFAULT 0,
	act_dropped      INTEGER NOT NULL DEFAULT 0,
	act_error        TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (project, name)
) STRICT;

-- Audit, the index, processes and sessions ------------------------------------------------------------------

-- before and after have the changed values: as they were, and as they became. seq and hash chain the entries,
-- a few seconds after their commit. Until then they are zero and ''.
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

-- The last entry of the chain. The row is locked while entries are chained.
CREATE TABLE audit_head (
	id   INTEGER PRIMARY KEY CHECK (id = 1),
	seq  INTEGER NOT NULL,
	hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');

-- The index of this database. generation is the present generation, which started at made_at. built is the
-- last generation that was filled completely, at built_at.
CREATE TABLE index_meta (
	id         INTEGER PRIMARY KEY CHECK (id = 1),
	generation INTEGER NOT NULL,
	built      INTEGER NOT NULL,
	built_at   INTEGER NOT NULL DEFAULT 0,
	made_at    INTEGER NOT NULL DEFAULT 0,
	shards     INTEGER NOT NULL,
	prefix     TEXT NOT NULL
) STRICT;

-- The stop of all sending, in one row. ends_at is zero without a stop. A stop ends by itself at ends_at.
CREATE TABLE stop (
	id         INTEGER PRIMARY KEY CHECK (id = 1),
	began_at   INTEGER NOT NULL,
	ends_at    INTEGER NOT NULL,
	reason     TEXT NOT NULL,
	stopped_by TEXT NOT NULL
) STRICT;
INSERT INTO stop (id, began_at, ends_at, reason, stopped_by) VALUES (1, 0, 0, '', '');

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

-- The processes, as each one last reported itself. ended_at is set by an orderly shutdown.
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

-- Browsers that have signed in. token is a hash of the cookie's value. data belongs to the web pages and has
-- no secrets.
CREATE TABLE sessions (
	token      TEXT PRIMARY KEY,
	data       BLOB NOT NULL,
	expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_expiry ON sessions (expires_at);
