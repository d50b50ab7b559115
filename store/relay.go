package store

import "errors"

// Bounds of relay sources.
const (
	// MaxRelaySources is the most sources of a project.
	MaxRelaySources = 1000
	// MaxRelayRefusals is the most refused rows that a report names.
	MaxRelayRefusals = 100
	// RelayCountLimit bounds the counts of rows in a report.
	RelayCountLimit = 10_001
)

var (
	// ErrRelayHeld: another relay holds the lease of the source.
	ErrRelayHeld = errors.New("another relay reads this source")
	// ErrRelayOrigin: the source's name stands for another table.
	ErrRelayOrigin = errors.New("this name stands for another table")
	// ErrRelayActing: the source has an act that is not finished.
	ErrRelayActing = errors.New("an act on this source is not finished")
)

// A RelaySource is an outbox table of an application, and what its relay reported last. Times are Unix
// milliseconds.
type RelaySource struct {
	Project string
	Name    string
	// Origin is the database and the table that Name stands for, without credentials.
	Origin string
	// Holder is the relay that has the lease until HeldUntil.
	Holder    string
	HeldUntil int64
	// ReportedAt is the time of Report. Zero: the relay has not reported.
	ReportedAt int64
	Report     RelayReport
	// Act is the newest act. An empty ID: there was none.
	Act RelayAct
}

// A RelayReport is the state of a source as its relay sees it.
type RelayReport struct {
	LagMs         int64
	Waiting       int
	RefusedRows   int
	RowsPerSecond float64
	Error         string
	// Refusals are the newest refused rows, at most MaxRelayRefusals.
	Refusals []RelayRefusal
}

// A RelayRefusal is a row in the refused table of a source.
type RelayRefusal struct {
	ID        string
	Seq       int64
	Kind      string
	Code      string
	Problem   string
	RefusedAt int64
}

// A RelayAction is what a person wants of the rows of a source.
type RelayAction string

// The actions: hand refused rows over again, delete refused rows, hand kept rows over again.
const (
	RelayRetry  RelayAction = "retry"
	RelayDrop   RelayAction = "drop"
	RelayReplay RelayAction = "replay"
)

// A RelayActState is how far an act is.
type RelayActState string

// The states of an act. It is waiting until the relay reads it.
const (
	RelayActWaiting RelayActState = "waiting"
	RelayActRunning RelayActState = "running"
	RelayActDone    RelayActState = "done"
	RelayActFailed  RelayActState = "failed"
)

// A RelayAct is an action of a person on the rows of a source. The relay carries it out; after a crash the
// next one begins it again, which changes nothing twice.
type RelayAct struct {
	ID     string
	Action RelayAction
	// RowID and Code select refused rows; empty: all. Since (Unix milliseconds), DryRun and Rate belong to a
	// replay.
	RowID  string
	Code   string
	Since  int64
	DryRun bool
	Rate   int

	RequestedAt int64
	RequestedBy string
	State       RelayActState
	Matched     int
	Accepted    int
	Replayed    int
	Refused     int
	Dropped     int
	Error       string
}

// Open reports whether the act is not finished.
func (a *RelayAct) Open() bool { return a.State == RelayActWaiting || a.State == RelayActRunning }

// A RelayHold takes or renews the lease of a source and stores the report of its holder.
type RelayHold struct {
	Origin string
	Holder string
	// Until is the end of the lease in Unix milliseconds. Not after now: the lease is given back.
	Until int64
	// Report is nil if the holder has nothing to report. KeepRefusals: Report has no Refusals, and the stored
	// ones stay.
	Report       *RelayReport
	KeepRefusals bool
	// Progress is how far the act with this ID is; an empty ID: no progress.
	Progress RelayAct
}
