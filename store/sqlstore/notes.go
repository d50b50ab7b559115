package sqlstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What a transaction changes of the counters, and what has ended by it, is appended as one note; once a second the notes are taken away
// by one transaction after the other, which adds them to the counters and to the feed of outcomes. So the hot path appends
// one row a group, the feed has an order although groups are committed side by side, and nothing comes into it before its end.
// See docs/adr/0019-the-feed-is-put-in-order-by-one.md.

// An endedGroup is what ended alike, as it is noted.
type endedGroup struct {
	State    store.State  `json:"s"`
	Reason   store.Reason `json:"r,omitempty"`
	Class    store.Class  `json:"c,omitempty"`
	Status   int          `json:"h,omitempty"`
	Attempts int          `json:"n,omitempty"`
	At       int64        `json:"t"`
	// IDs are those of the callbacks, with a space between them.
	IDs string `json:"i"`
}

// like says whether two differ in nothing but their callbacks.
func (g *endedGroup) like(other *endedGroup) bool {
	a, b := *g, *other
	a.IDs, b.IDs = "", ""
	return a == b
}

// endings are what has ended, by project, each in order.
type endings map[string][]endedGroup

// A projectNotes is what has ended of one project, as it is being written: JSON of endings, but for the end.
type projectNotes struct {
	// last is the group that ids are added to.
	last endedGroup
	text strings.Builder
}

// ended notes that a row became terminal: it is as it is then.
func (t *tx) ended(c *store.Callback, at int64) {
	if c.Kind == store.Poll {
		t.endedPolls = append(t.endedPolls, endedPoll{c.ID, at})
	}
	of := endedGroup{State: c.State, Reason: c.Reason, Class: c.LastClass, Status: c.LastStatus, Attempts: c.AttemptCount, At: at}
	p := t.notes[c.Project]
	switch {
	case p == nil:
		if t.notes == nil {
			t.notes = make(map[string]*projectNotes)
		}
		p = new(projectNotes)
		t.notes[c.Project] = p
		const header, id = 150, 27
		p.text.Grow(header + len(c.Project) + id*max(t.many, 1))
		p.text.WriteByte('{')
		p.string(c.Project)
		p.text.WriteString(`:[`)
	case p.last == of:
		p.text.WriteByte(' ')
		p.inString(c.ID)
		return
	default:
		p.text.WriteString(`"},`)
	}
	p.last = of
	p.text.WriteString(`{"s":`)
	p.string(string(of.State))
	if of.Reason != "" {
		p.text.WriteString(`,"r":`)
		p.string(string(of.Reason))
	}
	if of.Class != "" {
		p.text.WriteString(`,"c":`)
		p.string(string(of.Class))
	}
	p.number(`,"h":`, int64(of.Status))
	p.number(`,"n":`, int64(of.Attempts))
	p.number(`,"t":`, of.At)
	p.text.WriteString(`,"i":"`)
	p.inString(c.ID)
}

// string writes a JSON string, number a number with what stands before it, unless it is zero, and inString a part of a string.
func (p *projectNotes) string(s string) {
	p.text.WriteByte('"')
	p.inString(s)
	p.text.WriteByte('"')
}

func (p *projectNotes) number(before string, n int64) {
	if n == 0 {
		return
	}
	var digits [20]byte
	p.text.WriteString(before)
	p.text.Write(strconv.AppendInt(digits[:0], n, 10))
}

func (p *projectNotes) inString(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text := appendText(nil, s)
			p.text.Write(text[1 : len(text)-1])
			return
		}
	}
	p.text.WriteString(s)
}

// notedOutcomes is what has ended as JSON, as endings are.
func (t *tx) notedOutcomes() string {
	const end = `"}]`
	parts := make([]string, 0, len(t.notes))
	for _, project := range sortedKeys(t.notes) {
		p := t.notes[project]
		p.text.WriteString(end)
		if len(t.notes) == 1 {
			p.text.WriteByte('}')
			return p.text.String()
		}
		parts = append(parts, p.text.String()[1:])
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// writeNote appends what the transaction has noted as one row.
func (t *tx) writeNote() error {
	deltas, outcomes := t.deltas.text(), ""
	if deltas == "" && len(t.notes) == 0 {
		return nil
	}
	if len(t.notes) > 0 {
		outcomes = t.notedOutcomes()
	}
	const insert = `INSERT INTO commit_notes (deltas, outcomes) VALUES ($1, $2)`
	if t.group != nil {
		t.group.first(insert, deltas, outcomes)
		return nil
	}
	if _, err := t.exec(insert, deltas, outcomes); err != nil {
		return fmt.Errorf("append note: %w", err)
	}
	return nil
}

// merge adds what a note says has ended.
func (e *endings) merge(text string) error {
	if text == "" {
		return nil
	}
	var more endings
	if err := json.Unmarshal([]byte(text), &more); err != nil {
		return fmt.Errorf("decode outcomes: %w", err)
	}
	if *e == nil {
		*e = make(endings)
	}
	for project, groups := range more {
		for i := range groups {
			g, all := &groups[i], (*e)[project]
			if n := len(all); n > 0 && all[n-1].like(g) && len(all[n-1].IDs) < feedRow {
				all[n-1].IDs += " " + g.IDs
				continue
			}
			(*e)[project] = append(all, *g)
		}
	}
	return nil
}
