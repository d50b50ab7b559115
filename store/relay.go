package store

import (
	"errors"
	"fmt"
)

// Bounds of relay sources.
const (
	// RelayLease is how long a lease of a source lasts, in milliseconds. MaxRelayLease is the most by which a
	// lease may end in the future: one that ends later was taken before the clock went back.
	RelayLease    = 10_000
	MaxRelayLease = 60_000
	// MaxRelaySources is the most sources of a project.
	MaxRelaySources = 1000
	// MaxRelayRefusals is the most refused rows that a report names.
	MaxRelayRefusals = 100
	// MaxRelayLag bounds the reported lag, in milliseconds: 400 days.
	MaxRelayLag = 400 * 24 * 3600 * 1000
	// RelayCountLimit bounds the counts of rows in a report.
	RelayCountLimit = 10_001
)

var (
	// ErrRelayHeld: another relay holds the lease of the source.
	ErrRelayHeld = errors.New("another relay reads this source")
	// ErrRelayOrigin: the source's name stands for another table, or its table has another name: then the
	// error is a *RelayNamedError.
	ErrRelayOrigin = errors.New("this name stands for another table")
	// ErrRelayActing: the source has an act that is not finished.
	ErrRelayActing = errors.New("an act on this source is not finished")
	// ErrTooManySources: the project has MaxRelaySources sources.
	ErrTooManySources = fmt.Errorf("the project has %d relay sources, which is the limit", MaxRelaySources)
)

// A RelayNamedError is an ErrRelayOrigin: the table is read under the name Name. A second name would submit
// its rows a second time, because the name is a part of their keys.
type RelayNamedError struct{ Name string }

// Error has the name.
func (e *RelayNamedError) Error() string { return "the table is read under the name " + e.Name }

// Unwrap returns ErrRelayOrigin.
func (e *RelayNamedError) Unwrap() error { return ErrRelayOrigin }

// A RelaySource is an outbox table of an application, and what its relay reported last. Times are Unix
// milliseconds.
type RelaySource struct {
	Project string
	Name    string
	// Origin is the database and the table that Name stands for, without credentials.
	Origin string
	// Holder is the relay that has the lease until HeldUntil. HeldBy is the ID of the actor that took it: the
	// name of a holder is no proof, because everyone may choose it.
	Holder    string
	HeldBy    string
	HeldUntil int64
	CreatedAt int64
	// ReportedAt is the time of Report. Zero: the relay has not reported.
	ReportedAt int64
	Report     RelayReport
	// Act is the newest act. An empty ID: there was none.
	Act RelayAct
}

// Held reports whether a relay holds the lease at now.
func (s *RelaySource) Held(now int64) bool {
	return s.Holder != "" && s.HeldUntil > now && s.HeldUntil <= now+MaxRelayLease
}

// LagMs returns the reported lag at now, in milliseconds, at most MaxRelayLag. It grows by the time since the
// report while no relay holds the source, or its holder does not report.
func (s *RelaySource) LagMs(now int64) int64 {
	lag := s.Report.LagMs
	since := now - s.ReportedAt
	if s.ReportedAt > 0 && (since > RelayLease || since > 0 && !s.Held(now)) {
		lag += since
	}
	return min(lag, MaxRelayLag)
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
	ID        string `json:"id"`
	Seq       int64  `json:"seq"`
	Kind      string `json:"kind"`
	Code      string `json:"code"`
	Problem   string `json:"problem"`
	RefusedAt int64  `json:"refused_at"`
}

// A RelayAction is what a person wants of the rows of a source.
type RelayAction string

// The actions: submit refused rows again, delete refused rows, submit kept rows again.
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
	// RelayActCanceled is the state after a person ended the act. What it changed before stays.
	RelayActCanceled RelayActState = "canceled"
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
	// By is the actor of the call. While the source is held, only the same Holder and By.ID may renew.
	By Actor
	// Release gives the lease back.
	Release bool
	// Report is nil if the holder has nothing to report. KeepRefusals: Report has no Refusals, and the stored
	// ones stay.
	Report       *RelayReport
	KeepRefusals bool
	// Progress is how far the act with this ID is; an empty ID: no progress.
	Progress RelayAct
}
