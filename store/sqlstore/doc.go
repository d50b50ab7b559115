// Package sqlstore keeps callbacks, and everything that belongs to them, in SQL: one implementation and one text for
// SQLite (the default) and PostgreSQL 15 and later. What differs between the two stands in dialect.go.
//
// It guarantees that what was answered without an error is committed and synced to disk; that a result takes effect
// only with the fence of the last claim, and once; that every change made by a person is in the audit of the same
// transaction; that payloads come back byte by byte; and that every query a caller can reach is scoped by project.
//
// # Group commit
//
// Accepts, claim stamps and results are committed in groups: a writer takes everything that waits as soon as its last
// commit is done, without a timer, up to 256 rows a transaction. SQLite has one writer for all three kinds,
// PostgreSQL one for each, of which that of accepts commits a second group beside the first if it is full. A group that
// meets a transient error (deadlock, serialization, lost connection) is retried whole; one that is refused for good is
// halved until the bad row stands alone. A caller that gives up leaves its group alone: what it asked for may still be
// committed. See writer.go.
//
// # Attempting is derived
//
// A row whose state is scheduled and whose claim_until lies in the future is being attempted. Nothing has to be undone
// when a process dies, and a claim stamp changes no indexed column.
//
// # Settings are numbered
//
// Changes of projects and their presets, of endpoints and of lanes take numbers from one row, which each such transaction locks first: who
// follows the numbers misses none. See settings.go.
//
// # What has ended is a feed
//
// Every transaction notes what it changes of the counters and what has ended by it in one row. Fold takes these notes away, one
// transaction after the other, adds them to the counters and numbers the feed of outcomes. See notes.go.
//
// It does not decide: tiers, due times, classes and reasons come from the caller. It holds no clock of its own for
// rows: every time is a parameter. It knows nothing of the index and encrypts nothing: secrets arrive as ciphertext.
package sqlstore
