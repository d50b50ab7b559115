package store

// A MissedPolicy says what becomes of due times at which no dispatcher ran.
type MissedPolicy string

// The values of a MissedPolicy. The empty one means MissedOnce.
const (
	// MissedOnce fires once for all of them.
	MissedOnce MissedPolicy = "once"
	// MissedSkip fires for none of them.
	MissedSkip MissedPolicy = "skip"
)

// A Schedule makes a callback at each time that its spec names.
type Schedule struct {
	// ID is a bare ULID.
	ID      string
	Project string
	// Name is unique within the project.
	Name string
	// Cron has five fields, or is "@every" with a duration, or "@daily" and the like. Timezone is an IANA
	// name; empty: UTC.
	Cron     string
	Timezone string
	// Template is the callback as its caller wrote it, the body of a POST /v1/callbacks; or, in SQL, if it
	// has credentials, all of it as SealedText.
	Template JSONText
	Missed   MissedPolicy
	Enabled  bool
	// NextAt is its next due time; zero while it is not enabled. LastAt is when it fired last: the due time,
	// or when it was run by hand; zero: never. LastID is the callback of that, a bare ULID.
	NextAt, LastAt int64
	LastID         string
	// LastError is why the last due time made no callback; empty: it did.
	LastError string
	// Version grows with every change that a caller makes: a firing that was read before one has no effect.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
}

// A PlannedRun is one due time of a schedule, as the dispatcher that makes it has read it.
type PlannedRun struct {
	// Schedule is as it was read: it takes effect if its Version and NextAt are still those.
	Schedule Schedule
	// Next is its due time after this one; zero: there is none.
	Next int64
	// Draft is what is accepted in the same transaction; nil: nothing is, because of Why, or because what was
	// missed is skipped.
	Draft *Draft
	// Why there is no callback, for people; empty: nothing is wrong.
	Why string
	// Due is the due time that is fired, or skipped.
	Due int64
	Now int64
}

// A PlannedRunResult is what became of a Firing.
type PlannedRunResult struct {
	// Won: it took effect. Otherwise another dispatcher made it, or the schedule was changed.
	Won bool
	// Accepted is what became of its draft.
	Accepted Accepted
	// Err is why this firing alone could not be made.
	Err error
}

// A ScheduleRun is one callback that a schedule has made.
type ScheduleRun struct {
	// CallbackID is a bare ULID.
	CallbackID string
	// DueAt is the due time; of a run by hand, when that was.
	DueAt, FiredAt int64
	Trigger        Trigger
}

// KeptRuns is how many runs are kept of each schedule.
const KeptRuns = 100

// A ScheduleFilter picks schedules of one project. Zero fields pick all.
type ScheduleFilter struct {
	// Search is a part of the name.
	Search string
	// Enabled picks by that; nil: both.
	Enabled *bool
	// After continues a list: the id of the last one of the page before. Lists are newest first.
	After string
	Limit int
}

// MaxSchedules is how many schedules a project may have.
const MaxSchedules = 1000

// SealedKey returns the id of the master key that the template is sealed with; empty: it is not sealed.
func (s *Schedule) SealedKey() string {
	if s.Template == "" || s.Template[0] == '{' {
		return ""
	}
	keyID, _, _ := CutSealed(string(s.Template))
	return keyID
}
