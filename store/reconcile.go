package store

import "time"

// LocalTime returns when clocks in a zone show a time of a day. A day that is too large for its month counts
// into the next one. If clocks skip the time by going forward at midnight, LocalTime returns the start of the
// day; time.Date may return a time of the day before.
func LocalTime(year int, month time.Month, day, hour, minute int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, hour, minute, 0, 0, zone)
	if wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Day(); t.Day() != wanted {
		_, t = t.ZoneBounds()
	}
	return t
}

// A RefTopic names a callback that a caller expects. An empty Topic means a callback without a topic.
type RefTopic struct {
	Ref   string `json:"ref"`
	Topic string `json:"topic"`
}

// An ExpectedDay is the size of the list of a day, after a request changed it.
type ExpectedDay struct {
	// Added are the items that the list did not have, Removed those that it had, Items all of the list.
	Added, Removed, Items int64
}

// An ItemKind says what a reconciliation found about a reference and topic.
type ItemKind string

// The kinds of items, in the order of a report.
const (
	// ItemMissing: listed, and no callback was accepted in the span; for a report: from the start of the day
	// until the run.
	ItemMissing ItemKind = "missing"
	// ItemUnfinished: listed and accepted, and no callback of it has succeeded.
	ItemUnfinished ItemKind = "unfinished"
	// ItemDuplicate: listed, and several callbacks were accepted.
	ItemDuplicate ItemKind = "duplicate"
	// ItemExtra: accepted, and not listed.
	ItemExtra ItemKind = "extra"
)

// ItemKinds are all kinds, in the order of a report.
var ItemKinds = [...]ItemKind{ItemMissing, ItemUnfinished, ItemDuplicate, ItemExtra}

// A ReconcileItem is one finding.
type ReconcileItem struct {
	// Number is the place in the report, from 1. Zero: the item is not stored.
	Number int64
	Kind   ItemKind
	RefTopic
	// State is the best state of its callbacks: succeeded, scheduled, dead or canceled. Callbacks is their
	// number, and CallbackID the bare id of the first. A missing item has none. An extra item has only the
	// id.
	State      State
	CallbackID string
	Callbacks  int64
}

// An ItemComparison compares a list of references and topics with the callbacks accepted in a span.
type ItemComparison struct {
	// Listed is the number of different items in the list, Matched that of those with a callback.
	Listed, Matched int64
	// Missing, Unfinished, Duplicates and Extra count all items of each kind.
	Missing, Unfinished, Duplicates, Extra int64
	// Items are the first items of each kind, kind after kind.
	Items []ReconcileItem
}

// Reconciling is a project's daily reconciliation. The zero value: none.
type Reconciling struct {
	// At is the local time of the run, such as "02:00". Empty: no run.
	At string
	// Timezone is the IANA name of the zone of At and of the days.
	Timezone string
	// ExpectList: a day without a list is a finding.
	ExpectList bool
}

// Why a daily run failed. It is tried again.
const (
	// ReconcileTooLong: the callbacks of the day could not be read in time.
	ReconcileTooLong = "too_long"
	// ReconcileFailed: the log of the server has the error.
	ReconcileFailed = "failed"
)

// reconcileGrace is how late a daily run is when people hear of it. A run takes minutes, and those of other
// projects may come first.
const reconcileGrace = 30 * time.Minute

// LateReconcile returns the day whose daily run is late, for whatever reason. Empty: none is.
func (p *Project) LateReconcile(now int64) (day string) {
	if p.ReconcileNext == 0 || now-p.ReconcileNext < reconcileGrace.Milliseconds() {
		return ""
	}
	return p.NextReconciled()
}

// NextReconciled returns the day that the next daily run is about: the one before the run.
func (p *Project) NextReconciled() (day string) {
	zone, err := time.LoadLocation(p.Reconcile.Timezone)
	if err != nil {
		zone = time.UTC
	}
	return time.UnixMilli(p.ReconcileNext).In(zone).AddDate(0, 0, -1).Format(time.DateOnly)
}

// A ReconcileRun is one run over one day. From and To bound when callbacks were accepted.
type ReconcileRun struct {
	Project    string
	Day        string
	Timezone   string
	From, To   int64
	ExpectList bool
	// Due is the project's ReconcileNext that this run is for, and Next the one after it. Zero: a person
	// asked for the run.
	Due, Next int64
}

// A ReconcileReport is the result of the last run over one day of a project.
type ReconcileReport struct {
	Project  string
	Day      string
	RunID    string
	Timezone string
	From, To int64
	RunAt    int64
	// Books counts the accepted callbacks by state. Its Group is empty.
	Books Reconciliation
	// ExpectList: a list was expected. ListGiven: the caller has handed one in. Without a list nothing was
	// compared.
	ExpectList, ListGiven bool
	// The counts of the comparison, as in an ItemComparison.
	Listed, Matched, Missing, Unfinished, Duplicates, Extra int64
	// Announced: the operational event was accepted, or there is nothing to announce.
	Announced bool
}

// The findings of a report that need a person.
const (
	WrongUnbalanced = "unbalanced"
	WrongMissing    = "missing"
	WrongNoList     = "no_list"
)

// Wrong returns why the report is not good; empty: it is good.
func (r *ReconcileReport) Wrong() (why []string) {
	if !r.Books.Balanced() {
		why = append(why, WrongUnbalanced)
	}
	if r.Missing > 0 {
		why = append(why, WrongMissing)
	}
	if r.ExpectList && !r.ListGiven {
		why = append(why, WrongNoList)
	}
	return why
}
