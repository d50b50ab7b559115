// Package source reads and changes an outbox table in an application's own database, PostgreSQL, MySQL or
// MariaDB.
//
// A source is read with plain SELECTs in autocommit at READ COMMITTED, so no transaction is open between two
// calls, and an INSERT of the application never waits for a lock of this package. Rows leave the table only
// by their sequence number and id together, because a database may use a number twice.
//
// The package knows no callbacks and calls no dispatcher.
package source

import "time"

// Limits of a row. Contents above them are not read.
const (
	MaxRequest = 512 << 10
	MaxBody    = 256 << 10
	// MaxPage is the most bytes of contents of one page.
	MaxPage = 4 << 20
)

// DefaultTable is the outbox table of a source that names none.
const DefaultTable = "dispatcher_outbox"

// A Dialect is the language of a source's database.
type Dialect string

// The dialects. MySQL is also that of MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
)

// A Key names a row of an outbox table.
type Key struct {
	Seq int64
	ID  string
}

// A Row is a row of an outbox table.
type Row struct {
	Key
	Kind string
	// Age is the time since the insert by the clock of the database, in whole milliseconds. Negative: the row
	// is from the future.
	Age time.Duration
	// Request and Body are nil above their limits. Body is nil too if the column is NULL.
	Request, Body []byte
	// RequestBytes and BodyBytes are the lengths in the table. BodyBytes is -1 if the column is NULL.
	RequestBytes, BodyBytes int
}

// A Refusal is a row that the dispatcher does not accept, and why. Code keeps 64 characters, Problem 1,000.
type Refusal struct {
	Key
	Code, Problem string
}

// A RefusedRow is a row in the refused table.
type RefusedRow struct {
	Refusal
	Kind string
	// RefusedAt is by the clock of the database.
	RefusedAt time.Time
}

// A Filter selects refused rows. Empty fields select all.
type Filter struct {
	ID, Code string
	// Before selects rows that were refused at least so long ago, by the clock of the database.
	Before time.Duration
}

// A Kept is the place of a row in the table of removed rows. The zero value is before all rows.
type Kept struct {
	// DoneAt is when the row was removed, by the clock of the database.
	DoneAt time.Time
	Key
}

// A KeptRow is a row in the table of removed rows.
type KeptRow struct {
	Row
	DoneAt time.Time
}

// Kept returns the place of the row.
func (r *KeptRow) Kept() Kept { return Kept{r.DoneAt, r.Key} }

// A Level is the weight of a finding.
type Level string

// The levels: a source with an error is not read, one with warnings is.
const (
	LevelError   Level = "error"
	LevelWarning Level = "warning"
)

// A Finding is something that a check found wrong in a database or its tables.
type Finding struct {
	Level Level
	// Text says what is wrong, Cure how to change it. Both are sentences without a full stop.
	Text, Cure string
}
