package sqlstore

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// Each transaction that changes callbacks appends one note in the same transaction: its changes of counters,
// and the callbacks that it ended. Once a second Fold deletes the notes in the order of their numbers, and
// adds them to the counters and to the feed of outcomes.
//
// So the hot path inserts one row a group, and locks no row of a counter. The feed has one order, although
// groups commit at the same time. No outcome enters it before its transaction has committed. If a process
// dies, its notes stay for the next fold. See docs/adr/0019-feed-ordered-after-the-commit.md.

// The kinds of counter.
const (
	stateCounter = "state"
	tierCounter  = "tier"
	laneCounter  = "lane"
	dueCounter   = "due"
)

// A counter is one number of a project: the callbacks in a state, or the open callbacks of a tier, of a lane
// or due in an hour. number is the tier, the lane's id or the hour.
type counter struct {
	kind   string
	state  store.State
	number int64
}

// name is "kind:key", as notes and table counters have it.
func (c counter) name() string {
	switch c.kind {
	case stateCounter:
		return c.kind + ":" + string(c.state)
	case dueCounter:
		return c.kind + ":" + hourOf(c.number*hour)
	}
	return c.kind + ":" + strconv.FormatInt(c.number, 10)
}

// counterChanges sums the changes of counters by one transaction, by project.
type counterChanges map[string]map[counter]int64

// count adds n times the callback to the counters of its present state, tier, lane and due hour. A change of
// a row is counted as -1 before it and +1 after it.
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

// deltas returns the sums that are not zero, as a note stores them.
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

// deltas are changes of counters, by project and by the counter's name.
type deltas map[string]map[string]int64

// merge adds to d the changes in text, the Deltas of one note. The fold sums notes with it before it writes
// the counters, and a read of counters adds those that are not folded yet. The caller must merge each note
// once.
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

// An endState is how a callback ended. It has short JSON names, because notes and the feed store many of
// them.
type endState struct {
	State    store.State  `json:"s"`
	Reason   store.Reason `json:"r,omitempty"`
	Class    store.Class  `json:"c,omitempty"`
	Status   int          `json:"h,omitempty"`
	Attempts int          `json:"n,omitempty"`
	At       int64        `json:"t"`
}

// An endedGroup is callbacks that ended the same way one after the other.
type endedGroup struct {
	endState
	IDs idList `json:"i"`
}

// An idList is ids, stored with a space between them.
type idList []string

// MarshalText implements [encoding.TextMarshaler].
func (l idList) MarshalText() ([]byte, error) { return []byte(strings.Join(l, " ")), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *idList) UnmarshalText(text []byte) error {
	*l = strings.Fields(string(text))
	return nil
}

// endedByProject is the callbacks that ended, by project, in the order in which they ended.
type endedByProject map[string][]endedGroup

// add appends ids to the last group if they ended the same way and it has room, and else begins a new group.
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

// merge appends the ended callbacks of a note.
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

// noteEnd records that a row became terminal in this transaction. c is the row after the change. The end of a
// poll is also kept for acceptPollResults.
func (t *tx) noteEnd(c *store.Callback, at int64) {
	if c.Kind == store.Poll {
		t.endedPolls = append(t.endedPolls, endedPoll{c.ID, at})
	}
	t.endings.add(c.Project, endState{c.State, c.Reason, c.LastClass, c.LastStatus, c.AttemptCount, at}, c.ID)
}

// A note is the row that one transaction appends. Both texts are JSON, or empty for nothing.
type note struct {
	ID               int64
	Deltas, Outcomes string
}

var noteColumns = sqldb.Named[note](`id deltas outcomes`)

// writeNote appends the transaction's note, if it changed a counter or ended a callback. within calls it
// last, before the commit.
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
