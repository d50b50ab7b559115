package store

// A MissedPolicy is the rule for due times that passed while no dispatcher ran.
type MissedPolicy string

// The values of a MissedPolicy. The empty value means MissedOnce.
const (
	// MissedOnce makes one run for all missed due times together.
	MissedOnce MissedPolicy = "once"
	// MissedSkip makes no run for missed due times.
	MissedSkip MissedPolicy = "skip"
)

// A Schedule creates a callback at each of its due times.
type Schedule struct {
	// ID is a bare ULID.
	ID      string
	Project string
	// Name is unique within the project.
	Name string
	// Cron has five fields, or is "@every" and a duration, or a name such as "@daily". Timezone is an IANA
	// name. Empty: UTC.
	Cron     string
	Timezone string
	// Template is the body of a POST /v1/callbacks, as the caller wrote it. A template with credentials is
	// stored whole as SealedText.
	Template JSONText
	Missed   MissedPolicy
	Enabled  bool
	// NextAt is the next due time, zero while the schedule is disabled. LastAt is the due time of the last
	// run, or the time of a manual run. Zero: no run. LastID is the callback of that run, a bare ULID.
	NextAt, LastAt int64
	LastID         string
	// LastError is why the last due time created no callback. Empty: it created one.
	LastError string
	// Version grows with each change by a caller. A PlannedRun with an older Version has no effect.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
}

// A PlannedRun is one run of a schedule, as a dispatcher has planned it.
type PlannedRun struct {
	// Schedule is the schedule as the dispatcher read it. The run takes effect only if Version and NextAt are
	// unchanged. So two dispatchers cannot both make the run.
	Schedule Schedule
	// Next is the due time after this one. Zero: none.
	Next int64
	// Draft is the callback to accept in the same transaction. It is nil if Why is set, and for missed due
	// times that are skipped.
	Draft *Draft
	// Why is a text for people: why there is no callback. Empty: no error.
	Why string
	// Due is the due time of the run.
	Due int64
	Now int64
}

// A PlannedRunResult is the result of a PlannedRun.
type PlannedRunResult struct {
	// Won: the run took effect. Otherwise another dispatcher made it, or the schedule was changed.
	Won bool
	// Accepted is the result of the draft.
	Accepted Accepted
	// Err is the error of this run alone.
	Err error
}

// A ScheduleRun is a run of a schedule that created a callback.
type ScheduleRun struct {
	// CallbackID is a bare ULID.
	CallbackID string
	// DueAt is the due time, or the time of a manual run. FiredAt is when the callback was created.
	DueAt, FiredAt int64
	Trigger        Trigger
}

// KeptRuns is the number of runs that the store keeps of each schedule.
const KeptRuns = 100

// A ScheduleFilter picks schedules of one project. Zero fields pick all.
type ScheduleFilter struct {
	// Search is a part of the name.
	Search string
	// Enabled picks enabled or disabled schedules. Nil: both.
	Enabled *bool
	// LateBefore picks enabled schedules that were due before it and have not run, and those whose last run
	// created no callback. Zero: all.
	LateBefore int64
	// After continues a list after the schedule with this id, the last of the previous page. Lists are newest
	// first.
	After string
	Limit int
}

// MaxSchedules bounds the schedules of a project.
const MaxSchedules = 1000

// SealedKey returns the id of the master key that sealed the template, empty if it is not sealed.
func (s *Schedule) SealedKey() string {
	if s.Template == "" || s.Template[0] == '{' {
		return ""
	}
	keyID, _, _ := CutSealed(string(s.Template))
	return keyID
}
