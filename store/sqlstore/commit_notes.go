package sqlstore

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// What a transaction changes of the counters, and what has ended by it, is appended as one note; once a
// second the notes are taken away by one transaction after the other, which adds them to the counters and to
// the feed of outcomes. So the hot path appends one row a group and locks no row of a counter, the feed has
// an order although groups are committed side by side, and nothing comes into it before its end. See
// docs/adr/0019-feed-ordered-after-the-commit.md.

// The kinds of counter.
const (
	stateCounter = "state"
	tierCounter  = "tier"
	laneCounter  = "lane"
	dueCounter   = "due"
)

// A counter is one of a project's: the callbacks in a state, or the open ones of a tier, of a lane, or due in
// an hour.
type counter struct {
	kind   string
	state  store.State
	number int64
}

// name is "kind:key".
func (c counter) name() string {
	switch c.kind {
	case stateCounter:
		return c.kind + ":" + string(c.state)
	case dueCounter:
		return c.kind + ":" + hourOf(c.number*hour)
	}
	return c.kind + ":" + strconv.FormatInt(c.number, 10)
}

// A counting adds up what a transaction changes of counters, by project.
type counterChanges map[string]map[counter]int64

// count adds n times the callback, as it stands, to its project's counters.
func (d *counterChanges) count(c *store.Callback, n int64) {
	if *d == nil {
		*d = make(counterChanges)
	}
	sums := (*d)[c.Project]
	if sums == nil {
		sums = make(map[counter]int64)
		(*d)[c.Project] = sums
	}
	sums[counter{kind: stateCounter, state: c.State}] += n
	if !c.State.Terminal() {
		sums[counter{kind: tierCounter, number: int64(position(c))}] += n
		sums[counter{kind: laneCounter, number: c.LaneID}] += n
		sums[counter{kind: dueCounter, number: hourNumber(c.DueAt)}] += n
	}
}

// deltas are the differences, as they are noted.
func (d counterChanges) deltas() deltas {
	all := make(deltas)
	for project, sums := range d {
		m := make(map[string]int64, len(sums))
		for c, n := range sums {
			if n != 0 {
				m[c.name()] = n
			}
		}
		if len(m) > 0 {
			all[project] = m
		}
	}
	return all
}

// deltas are differences of counters by project and name.
type deltas map[string]map[string]int64

// merge adds what a note says of counters.
func (d deltas) merge(text string) error {
	var more deltas
	if err := decode("counter deltas", text, &more); err != nil {
		return err
	}
	for project, m := range more {
		if d[project] == nil {
			d[project] = m
			continue
		}
		for name, n := range m {
			d[project][name] += n
		}
	}
	return nil
}

// An endState is how callbacks have ended.
type endState struct {
	State    store.State  `json:"s"`
	Reason   store.Reason `json:"r,omitempty"`
	Class    store.Class  `json:"c,omitempty"`
	Status   int          `json:"h,omitempty"`
	Attempts int          `json:"n,omitempty"`
	At       int64        `json:"t"`
}

// An endedGroup is what ended alike, as it is noted.
type endedGroup struct {
	endState
	IDs idList `json:"i"`
}

// An idList is ids that are written with a space between them.
type idList []string

// MarshalText implements [encoding.TextMarshaler].
func (l idList) MarshalText() ([]byte, error) { return []byte(strings.Join(l, " ")), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *idList) UnmarshalText(text []byte) error {
	*l = strings.Fields(string(text))
	return nil
}

// endings are what has ended, by project, each in order.
type endedByProject map[string][]endedGroup

// add notes what has ended.
func (e *endedByProject) add(project string, as endState, ids ...string) {
	if *e == nil {
		*e = make(endedByProject)
	}
	groups := (*e)[project]
	if n := len(groups); n > 0 && groups[n-1].endState == as && len(groups[n-1].IDs) < feedIDs {
		groups[n-1].IDs = append(groups[n-1].IDs, ids...)
		return
	}
	(*e)[project] = append(groups, endedGroup{as, ids})
}

// merge adds what a note says has ended.
func (e *endedByProject) merge(text string) error {
	var more endedByProject
	if err := decode("outcomes", text, &more); err != nil {
		return err
	}
	for project, groups := range more {
		for _, g := range groups {
			e.add(project, g.endState, g.IDs...)
		}
	}
	return nil
}

// ended notes that a row became terminal: it is as it is then.
func (t *tx) noteEnd(c *store.Callback, at int64) {
	if c.Kind == store.Poll {
		t.endedPolls = append(t.endedPolls, endedPoll{c.ID, at})
	}
	t.endings.add(c.Project, endState{c.State, c.Reason, c.LastClass, c.LastStatus, c.AttemptCount, at}, c.ID)
}

// A note is what one transaction appends: JSON, or empty for nothing.
type note struct {
	ID               int64
	Deltas, Outcomes string
}

var noteColumns = sqldb.Named[note](`id deltas outcomes`)

// writeNote appends what the transaction has noted as one row.
func (t *tx) writeNote() error {
	var n note
	for _, part := range []struct {
		to   *string
		size int
		what any
	}{{&n.Deltas, len(t.deltas), t.deltas.deltas()}, {&n.Outcomes, len(t.endings), t.endings}} {
		if part.size == 0 {
			continue
		}
		text, err := json.Marshal(part.what)
		if err != nil {
			return named("encode note", err)
		}
		*part.to = string(text)
	}
	if n == (note{}) {
		return nil
	}
	return named("append note", t.Later(`INSERT INTO commit_notes (deltas, outcomes) VALUES ($1, $2)`,
		n.Deltas, n.Outcomes))
}
